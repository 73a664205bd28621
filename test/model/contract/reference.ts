/**
 * What the contract promises, as plain data, one call at a time. The rules of one record alone are those of the domain,
 * which other tests state. What several records, calls or times have to do with each other is here once more.
 */
import { emailKey } from "../../../src/base/email.ts";
import { AppError } from "../../../src/base/error.ts";
import { orderFields, patchOrder } from "../../../src/domain/order.ts";
import { firstVersion } from "../../../src/domain/record.ts";
import { patchUser, userFields } from "../../../src/domain/user.ts";

export type Table = "users" | "orders";
/** A record, a change, a body, a query or a line of an import. */
export type Row = Readonly<Record<string, any>>;

export interface Write {
  readonly kind: "write";
  readonly method: "POST" | "PATCH" | "PUT" | "DELETE";
  readonly table: Table;
  /** 0 for a POST. */
  readonly id: number;
  readonly body: Row;
  readonly key: string | null;
  readonly ifMatch: number | null;
}

export interface Read {
  readonly kind: "get" | "list" | "history" | "sum";
  readonly table: Table | "changes";
  readonly query: Row;
}

export interface Import {
  readonly kind: "import";
  readonly table: Table;
  readonly lines: readonly Row[];
  readonly update: boolean;
  readonly dryRun: boolean;
}

export type Call = Write | Read | Import;

/** What a call came to: `json` and `replayed`, a page, the `results` of an import, or the `code` of an error. */
export type Outcome = Row;

/** What a key has. `userId` is 0 for an order. */
interface Stored {
  readonly request: string;
  readonly json: string;
  readonly userId: number;
  readonly storedMs: number;
}

export interface State {
  readonly users: ReadonlyMap<number, Row>;
  readonly orders: ReadonlyMap<number, Row>;
  readonly keys: Map<string, Stored>;
  /** The greatest id that a record ever had. */
  readonly lastIds: Readonly<Record<Table, number>>;
  /** Those that are kept. */
  readonly changes: readonly Row[];
  readonly lastChange: number;
  readonly feed: string;
}

/** The rules, by what a call comes to, or by what is compared. A history that breaks one prints it. */
export const promises = {
  created: "a create returns the record that it stores, with an id that no record ever had",
  updated: "an update stores and returns the record with its changes and the next version",
  unchanged: "a write that leaves every field as it is changes nothing, not even the version",
  deleted: "a deletion returns the record as it was, and frees its email and its reference",
  replayed: "a request that is repeated with its key is made once, until the key is deleted",
  idempotency_key_reused: "a key that was used for another request is rejected",
  not_found: "a record that does not exist is not found, and no write creates it",
  version_mismatch: "a write with a stale precondition changes nothing",
  email_taken: "an email is given once, in any spelling",
  reference_taken: "a reference is given once, and each spelling is another one",
  user_has_orders: "a user with orders is not deleted",
  validation_failed: "the user of an order exists",
  invalid_status_change: "an order changes its status by allowed steps only",
  invalid_refund: "a refund never decreases, and is at most the total",
  get: "a record is read as it is stored",
  list: "a list has the records, the order, the total and the cursor of one moment",
  sum: "sums add up the orders of one moment, by day or month, currency and status",
  history: "a record has those of its changes that are kept, also after its deletion",
  changes: "the feed has each change once, with consecutive ids, and says what is no longer kept",
  import: "an import decides each line by the record that it is, and makes what its results say",
  dryRun: "a dry run stores nothing, and says what the import does",
  repeated: "an import that is repeated changes nothing",
  restart: "what was acknowledged is there after a restart",
  copy: "a copy has the rows that the API shows, and the keys that are valid",
  unavailable: "a call that fails because the disk is full changes nothing, and is possible later",
  check: "check finds no problem",
  bug: "no call ends with an unexpected error",
} as const;

export type Rule = keyof typeof promises;

export interface Decision {
  readonly rule: Rule;
  readonly outcome: Outcome;
  /** `null` after a deletion; missing if nothing changes. */
  readonly after?: Row | null;
}

export const statuses = ["pending", "paid", "shipped", "delivered", "canceled"] as const;

/** The name of the token that writes. */
export const AUTHOR = 'Zoë "😀"';

export const emptyState: State = {
  users: new Map(),
  orders: new Map(),
  keys: new Map(),
  lastIds: { users: 0, orders: 0 },
  changes: [],
  lastChange: 0,
  feed: "",
};

export const timeOf = (ms: number): string => new Date(ms).toISOString();

/** The time of a change does not go back when the clock does. */
export function nextVersion({ version, updated_at }: Row, edited: Row, time: string): Row {
  const times = [updated_at, time].sort();
  return { ...edited, version: version + 1, updated_at: times[1] };
}

const writtenFields = "email name reference metadata status refunded user_id".split(" ");

/** @param before the record before an update */
export function changeOf(
  what: string,
  table: Table,
  row: Row,
  token: string | null,
  time: string,
  before: Row = row,
) {
  const { id, version, status = null } = row;
  const type = `${table.slice(0, -1)}.${what}`;
  const changed = writtenFields.filter((name) => !Bun.deepEquals(row[name], before[name], true));
  const fields = what === "updated" ? changed : null;
  return { type, record_id: id, version, status, token, created_at: time, fields };
}

/** @returns the edit that a request asks for, as the routes have it. @throws {AppError} if the record does not allow it */
export function editOf({ method, table, body }: Write): (before: any) => any {
  if (table === "orders") return (order) => patchOrder(order, body);
  if (method === "PATCH") return (user) => patchUser(user, body);
  return ({ reference }) => userFields({ reference, ...body } as never);
}

export const fieldsOf = ({ table, body }: Write): any =>
  table === "users" ? userFields(body as never) : orderFields(body as never);

function conflictOf({ users, orders }: State, table: Table, row: Row): Rule | null {
  const { id, email, reference, user_id } = row;
  const others = [...(table === "users" ? users : orders).values()].filter((one) => one.id !== id);
  if (table === "orders" && !users.has(user_id)) return "validation_failed";
  if (table === "users" && others.some((one) => emailKey(one.email) === emailKey(email)))
    return "email_taken";
  const isTaken = reference !== null && others.some((one) => one.reference === reference);
  return isTaken ? "reference_taken" : null;
}

const requestOf = ({ method, table, id, body }: Write) => JSON.stringify([method, table, id, body]);

/** @param newId of the record, if one is created */
export function decide(state: State, write: Write, nowMs: number, newId: number): Decision {
  const { method, table, id, key, ifMatch } = write;
  const failed = (rule: Rule) => ({ rule, outcome: { code: rule } });
  const done = (rule: Rule, row: Row) => ({
    rule,
    outcome: { json: JSON.stringify(row), replayed: false },
  });
  const stored = state.keys.get(key ?? "");
  if (stored !== undefined) {
    if (stored.request !== requestOf(write)) return failed("idempotency_key_reused");
    return { rule: "replayed", outcome: { json: stored.json, replayed: true } };
  }
  const time = timeOf(nowMs);
  if (method === "POST") {
    const after = firstVersion(newId, fieldsOf(write), time);
    const problem = conflictOf(state, table, after);
    return problem === null ? { ...done("created", after), after } : failed(problem);
  }
  const before = state[table].get(id);
  if (before === undefined) return failed("not_found");
  if (ifMatch !== null && ifMatch !== before.version) return failed("version_mismatch");
  if (method === "DELETE") {
    const hasOrders = [...state.orders.values()].some((order) => order.user_id === id);
    return hasOrders ? failed("user_has_orders") : { ...done("deleted", before), after: null };
  }
  let edited: Row;
  try {
    edited = { ...before, ...editOf(write)(before) };
  } catch (error) {
    if (error instanceof AppError) return failed(error.code as Rule);
    throw error;
  }
  if (Bun.deepEquals(before, edited, true)) return done("unchanged", before);
  const problem = conflictOf(state, table, edited);
  if (problem !== null) return failed(problem);
  const after = nextVersion(before, edited, time);
  return { ...done("updated", after), after };
}

/** @returns a copy with these records; those that are `null` were deleted. @param changes without their ids */
export function withRecords(
  state: State,
  table: Table,
  records: ReadonlyMap<number, Row | null>,
  changes: readonly Row[],
): State {
  const rows = new Map(state[table]);
  for (const [id, row] of records) {
    if (row === null) rows.delete(id);
    else rows.set(id, row);
  }
  const isKept = ({ userId }: Stored) => table === "orders" || records.get(userId) !== null;
  const numbered = changes.map((change, at) => ({ id: state.lastChange + at + 1, ...change }));
  return {
    ...state,
    [table]: rows,
    keys: new Map([...state.keys].filter(([, stored]) => isKept(stored))),
    lastIds: { ...state.lastIds, [table]: Math.max(state.lastIds[table], ...records.keys()) },
    changes: [...state.changes, ...numbered],
    lastChange: state.lastChange + changes.length,
  };
}

/** Stores the response with the key of the request, if it has one. */
export function storeKey({ keys }: State, write: Write, json: string, nowMs: number): void {
  const userId = write.table === "users" ? JSON.parse(json).id : 0;
  const stored = { request: requestOf(write), json, userId, storedMs: nowMs };
  if (write.key !== null) keys.set(write.key, stored);
}

function changePage({ changes, lastChange: last, feed, ...state }: State, query: Row): Outcome {
  const { limit, offset = 0, after, include } = query;
  const first = changes[0]?.id ?? 1;
  if (after > last) return { code: "changes_reset" };
  if (after < first - 1) return { code: "changes_expired" };
  const recordOf = ({ type, record_id }: Row) =>
    (type.startsWith("user") ? state.users : state.orders).get(record_id) ?? null;
  const records = changes
    .filter(({ id }) => after === undefined || id > after)
    .slice(offset, offset + limit)
    .map((row) => JSON.stringify(include === undefined ? row : { ...row, record: recordOf(row) }));
  return { records: records.join(","), total: changes.length, first, last, feed };
}

/** How far the clocks of these zones are ahead of UTC, always. */
const offsetsMs: Row = { UTC: 0, "Asia/Tokyo": 32_400_000, "Pacific/Honolulu": -36_000_000 };

function sumsOf(
  { orders }: State,
  { created_from, created_to, interval, time_zone }: Row,
): Outcome {
  const offsetMs = offsetsMs[time_zone];
  const localDay = (time: string) => timeOf(Date.parse(time) + offsetMs).slice(0, 10);
  const sums = new Map<string, Row>();
  for (const { created_at, currency, status, total, refunded } of orders.values()) {
    if (created_at < created_from || created_at >= created_to) continue;
    const [year = 0, month = 0, day = 0] = localDay(created_at).split("-").map(Number);
    const isDay = interval === "day";
    const begin = timeOf(Date.UTC(year, month - 1, isDay ? day : 1) - offsetMs);
    const end = timeOf(Date.UTC(year, month - Number(isDay), isDay ? day + 1 : 1) - offsetMs);
    const from = begin < created_from ? created_from : begin;
    const to = end > created_to ? created_to : end;
    const key = `${from} ${currency} ${statuses.indexOf(status)}`;
    const sum = sums.get(key) ?? { orders: 0, total: 0, refunded: 0 };
    const amounts = { total: sum.total + total, refunded: sum.refunded + refunded };
    sums.set(key, { from, to, currency, status, orders: sum.orders + 1, ...amounts });
  }
  return { json: JSON.stringify([...sums.keys()].sort().map((key) => sums.get(key))) };
}

export function answer(state: State, { kind, table, query }: Read): Outcome {
  if (kind === "sum") return sumsOf(state, query);
  if (table === "changes") return changePage(state, query);
  if (kind === "get") {
    const row = state[table].get(query.id);
    return row === undefined ? { code: "not_found" } : { json: JSON.stringify(row) };
  }
  if (kind === "history") {
    const isOfRecord = ({ type, record_id }: Row) =>
      table.startsWith(type.split(".")[0]) && record_id === query.id;
    const changes = state.changes.filter(isOfRecord);
    const isFound = changes.length > 0 || state[table].has(query.id);
    return isFound ? pageOf(changes, query) : { code: "not_found" };
  }
  const { limit: _, offset: __, after: ___, sort: ____, id, email, status, ...others } = query;
  const { created_from = "", created_to = "~", ...filters } = others;
  const matching = [...state[table].values()]
    .filter((row) => id === undefined || id.includes(row.id))
    .filter((row) => email === undefined || emailKey(row.email) === emailKey(email))
    .filter((row) => status === undefined || status.includes(row.status))
    .filter((row) => row.created_at >= created_from && row.created_at < created_to)
    .filter((row) => Object.entries(filters).every(([name, value]) => row[name] === value));
  return pageOf(matching, query);
}

function pageOf(matching: Row[], { limit, offset = 0, after, sort }: Row): Outcome {
  const sign = sort === "-id" ? -1 : 1;
  const sorted = matching.sort((one, other) => sign * (one.id - other.id));
  const rest = after ? sorted.filter((row) => sign * (row.id - after) > 0) : sorted;
  const page = rest.slice(offset, offset + limit);
  const hasNext = after !== undefined && rest.length > page.length;
  const records = page.map((row) => JSON.stringify(row)).join(",");
  return { records, total: matching.length, nextAfter: hasNext ? page.at(-1)?.id : null };
}
