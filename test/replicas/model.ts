/** A sequential model of the API: which responses it allows in its current state. */
import type { TestResponse } from "../http/server.ts";

export type Row = Record<string, any>;

export interface Request {
  readonly method: "GET" | "POST" | "PATCH" | "PUT" | "DELETE";
  /** `/users`, `/orders`, or one record of them; a list may have one filter. */
  readonly path: string;
  readonly body?: Row;
  readonly key?: string;
  /** A version. */
  readonly ifMatch?: number;
}

export interface Exchange extends Request {
  readonly response: TestResponse;
  /** When the request was sent and its response received, as numbers of a common sequence of events. */
  readonly started: number;
  readonly ended: number;
}

export interface Model {
  readonly users: Map<number, Row>;
  readonly orders: Map<number, Row>;
  readonly deletedUsers: Set<number>;
  /** The first exchange with each key. */
  readonly keys: Map<string, Exchange>;
}

type Undo = () => void;

/** The undo of an exchange that changes nothing. */
export const nothing: Undo = () => {};

const transitions: Record<string, readonly string[]> = {
  pending: ["paid", "canceled"],
  paid: ["shipped", "canceled"],
  shipped: ["delivered"],
  delivered: [],
  canceled: [],
};

export function makeModel(): Model {
  return { users: new Map(), orders: new Map(), deletedUsers: new Set(), keys: new Map() };
}

/** @returns the records by ascending id */
export function rowsOf(records: ReadonlyMap<number, Row>): Row[] {
  return [...records.values()].sort((left, right) => left["id"] - right["id"]);
}

/** @returns the error code of a response; empty if it has none */
function codeOf({ json }: TestResponse): string {
  return json?.meta?.code ?? "";
}

function nothingIf(allowed: boolean): Undo | null {
  return allowed ? nothing : null;
}

const emailOf = ({ email }: Row): string => email.toLowerCase();
const referenceOf = ({ reference }: Row): string | null => reference ?? null;

/** Whether another record has the key of this one. */
function isTaken(
  records: ReadonlyMap<number, Row>,
  keyOf: (row: Row) => string | null,
  row: Row,
): boolean {
  const key = keyOf(row);
  const isOther = (other: Row) => keyOf(other) === key && other["id"] !== row["id"];
  return key !== null && records.values().some(isOther);
}

/** @returns the errors of a user with these fields that follow from other users */
function conflictsOfUser({ users }: Model, user: Row): string[] {
  if (isTaken(users, emailOf, user)) return ["email_taken"];
  return isTaken(users, referenceOf, user) ? ["reference_taken"] : [];
}

/** @returns the errors of an order with these fields that follow from users and other orders */
function conflictsOfOrder({ users, orders }: Model, order: Row): string[] {
  return [
    ...(users.has(order["user_id"]) ? [] : ["validation_failed"]),
    ...(isTaken(orders, referenceOf, order) ? ["reference_taken"] : []),
  ];
}

/** Stores the record of the response if it has the wanted members. */
function store(
  records: Map<number, Row>,
  wanted: Row,
  { status, json }: TestResponse,
): Undo | null {
  const record: Row = json?.data ?? {};
  const { id, created_at, updated_at } = record;
  const before = records.get(id);
  const times = before === undefined ? { created_at: updated_at } : {};
  const isWanted =
    status === (before === undefined ? 201 : 200) &&
    updated_at >= (before?.["updated_at"] ?? created_at) &&
    Bun.deepEquals(record, { ...wanted, id, created_at, updated_at, ...times });
  if (!isWanted) return null;
  records.set(id, record);
  return () => {
    if (before === undefined) records.delete(id);
    else records.set(id, before);
  };
}

function createUser(model: Model, body: Row, response: TestResponse): Undo | null {
  const conflicts = conflictsOfUser(model, body);
  if (conflicts.length > 0) return nothingIf(conflicts.includes(codeOf(response)));
  const id = response.json?.data?.id;
  if (model.users.has(id) || model.deletedUsers.has(id)) return null;
  const wanted = { reference: null, name: null, metadata: {}, ...body, version: 1 };
  return store(model.users, wanted, response);
}

function createOrder(model: Model, body: Row, response: TestResponse): Undo | null {
  const conflicts = conflictsOfOrder(model, body);
  if (conflicts.length > 0) return nothingIf(conflicts.includes(codeOf(response)));
  if (model.orders.has(response.json?.data?.id)) return null;
  const items: { quantity: number; unit_price: number }[] = body["items"];
  const total = items.reduce((sum, { quantity, unit_price }) => sum + quantity * unit_price, 0);
  const defaults = { reference: null, metadata: {} };
  const wanted = { ...defaults, ...body, total, refunded: 0, status: "pending", version: 1 };
  return store(model.orders, wanted, response);
}

/** Compares what a key identifies. */
function isSameRequest(one: Request, other: Request): boolean {
  const isSame = one.method === other.method && one.path === other.path;
  return isSame && Bun.deepEquals(one.body, other.body);
}

/** A write of a record, which its key repeats. @param apply makes it for the first time */
function write(model: Model, exchange: Exchange, apply: () => Undo | null): Undo | null {
  const { key, response } = exchange;
  const replayed = response.headers.has("idempotent-replayed");
  const first = key === undefined ? undefined : model.keys.get(key);
  if (first !== undefined) {
    if (!isSameRequest(first, exchange)) return nothingIf(response.status === 422);
    const same = (name: string) => response.headers.get(name) === first.response.headers.get(name);
    return nothingIf(
      replayed &&
        response.status === first.response.status &&
        response.text === first.response.text &&
        ["location", "etag"].every(same),
    );
  }
  const undo = replayed ? null : apply();
  if (key === undefined || response.status > 201 || undo === null) return undo;
  model.keys.set(key, exchange);
  return () => {
    model.keys.delete(key);
    undo();
  };
}

/** A JSON Merge Patch whose metadata has no `null`. */
function patched(current: Row, patch: Row): Row {
  return { ...current, ...patch, metadata: { ...current["metadata"], ...patch["metadata"] } };
}

function change(
  records: Map<number, Row>,
  current: Row,
  wanted: Row,
  response: TestResponse,
): Undo | null {
  const data = response.json?.data;
  if (Bun.deepEquals(wanted, current)) {
    return nothingIf(response.status === 200 && Bun.deepEquals(data, current));
  }
  if (data?.id !== current["id"]) return null;
  return store(records, { ...wanted, version: current["version"] + 1 }, response);
}

function changeUser(model: Model, current: Row, exchange: Exchange): Undo | null {
  const { method, body = {}, response } = exchange;
  const wanted: Row =
    method === "PUT" ? { ...current, name: null, metadata: {}, ...body } : patched(current, body);
  const conflicts = conflictsOfUser(model, wanted);
  if (conflicts.length > 0) return nothingIf(conflicts.includes(codeOf(response)));
  return change(model.users, current, wanted, response);
}

function deleteUser(model: Model, current: Row, { response }: Exchange): Undo | null {
  const { id } = current as { id: number };
  const hasOrders = model.orders.values().some(({ user_id }) => user_id === id);
  if (hasOrders) return nothingIf(response.status === 409);
  if (response.status !== 200 || !Bun.deepEquals(response.json.data, current)) return null;
  const forgotten = [...model.keys].filter(
    ([, first]) => first.path.startsWith("/users") && first.response.json.data.id === id,
  );
  for (const [key] of forgotten) model.keys.delete(key);
  model.users.delete(id);
  model.deletedUsers.add(id);
  return () => {
    for (const [key, first] of forgotten) model.keys.set(key, first);
    model.users.set(id, current);
    model.deletedUsers.delete(id);
  };
}

function changeOrder(model: Model, current: Row, { body = {}, response }: Exchange): Undo | null {
  const wanted = patched(current, body);
  const { status, refunded, total } = wanted;
  const isStep = status === current["status"] || transitions[current["status"]]?.includes(status);
  const isRefund = refunded >= current["refunded"] && refunded <= total;
  const conflicts = [
    ...(isStep ? [] : ["invalid_status_change"]),
    ...(isRefund ? [] : ["invalid_refund"]),
    ...conflictsOfOrder(model, wanted),
  ];
  if (conflicts.length > 0) return nothingIf(conflicts.includes(codeOf(response)));
  return change(model.orders, current, wanted, response);
}

function get(records: ReadonlyMap<number, Row>, { path, response }: Exchange): Undo | null {
  const current = records.get(Number(path.split("/").at(-1)));
  if (current === undefined) return nothingIf(response.status === 404);
  return nothingIf(response.status === 200 && Bun.deepEquals(response.json.data, current));
}

/** A whole list, or its first record. */
function list(records: ReadonlyMap<number, Row>, { path, response }: Exchange): Undo | null {
  const { searchParams } = new URL(path, "http://localhost");
  const limit = Number(searchParams.get("limit"));
  const [[filter, value] = []] = [...searchParams].filter(([name]) => name !== "limit");
  const values = filter === "id" ? value?.split(",") : [value];
  const rows = rowsOf(records).filter((row) => !filter || values?.includes(`${row[filter]}`));
  return nothingIf(
    response.status === 200 &&
      response.json.meta.total === rows.length &&
      Bun.deepEquals(response.json.data, rows.slice(0, limit)),
  );
}

/** @returns how to undo it; `null` if the model does not allow this response in its current state */
export function step(model: Model, exchange: Exchange): Undo | null {
  const { method, path, ifMatch, response } = exchange;
  const [, collection = "", id] = path.split("?")[0]?.split("/") ?? [];
  const records = collection === "users" ? model.users : model.orders;
  if (method === "GET") return id === undefined ? list(records, exchange) : get(records, exchange);
  return write(model, exchange, () => {
    if (method === "POST")
      return (path === "/users" ? createUser : createOrder)(model, exchange.body ?? {}, response);
    const current = records.get(Number(id));
    if (current === undefined) return nothingIf(response.status === 404);
    if (ifMatch !== undefined && ifMatch !== current["version"]) {
      return nothingIf(response.status === 412);
    }
    if (collection === "orders") return changeOrder(model, current, exchange);
    return method === "DELETE"
      ? deleteUser(model, current, exchange)
      : changeUser(model, current, exchange);
  });
}
