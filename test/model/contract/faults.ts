/** Planted faults, each of which breaks a promise of the contract on SQLite: a model that does not notice them proves nothing. */
import type { Store } from "../../../src/domain/store.ts";
import { runSql } from "../../sqlite/open-database.ts";
import type { Call, Outcome, Row } from "./reference.ts";
import type { OpenPort, Port } from "./steps.ts";

type Send = Port["send"];

export interface Fault {
  readonly send?: (call: any, send: Send) => Promise<Outcome>;
  readonly store?: (store: Store) => Partial<Store>;
  /** Run behind the back of the server, after each start. */
  readonly sql?: string;
  /** Run before each start but the first one, which looks at the schema. */
  readonly restartSql?: string;
}

const onCall = (change: (call: any) => Row): Fault => ({
  send: (call, send) => send({ ...call, ...change(call) }),
});
const onQuery = (change: (query: any) => Row): Fault =>
  onCall(({ query }) => (query === undefined ? {} : { query: { ...query, ...change(query) } }));
const onImport = (work: (call: any, send: Send) => Promise<Outcome>): Fault => ({
  send: (call, send) => (call.kind === "import" ? work(call, send) : send(call)),
});
const onRecords = (change: (records: any) => Row): Fault => ({
  store: ({ users, orders }) => ({
    users: { ...users, ...change(users) },
    orders: { ...orders, ...change(orders) },
  }),
});
const onEdit = (change: (edit: any, before: any) => Row): Fault =>
  onRecords(({ update }) => ({
    update: (id: number, edit: any, ...rest: any[]) =>
      update(id, (before: any) => change(edit, before), ...rest),
  }));
const onSums = (change: (text: string) => string): Fault => ({
  store: ({ sumOrders }) => ({ sumOrders: async (bounds) => change(await sumOrders(bounds)) }),
});
const onExpiry = (deleteExpired: (store: Store) => Promise<boolean>): Fault => ({
  store: (store) => ({ changes: { ...store.changes, deleteExpired: () => deleteExpired(store) } }),
});
const trigger = (event: string, statement: string): Fault => ({
  sql: `create trigger planted after ${event} begin ${statement}; end`,
  restartSql: "drop trigger planted",
});
const onChange = (set: string, condition = "true"): Fault =>
  trigger(`insert on changes when ${condition}`, `update changes set ${set} where id = new.id`);
const onStoredKey = (set: string): Fault =>
  trigger("insert on idempotency_keys", `update idempotency_keys set ${set} where id = new.id`);
/** Each line as if it were the only one of its file. */
const importEach = (call: any, send: Send): Promise<string[]> =>
  Array.fromAsync(call.lines as Row[], async (line) => {
    const { results = [] } = await send({ ...call, lines: [line] } as Call);
    return results[0];
  });

export const faults: Readonly<Record<string, Fault>> = {
  "a stale precondition is accepted": onCall(() => ({ ifMatch: null })),
  "a key is not stored": onCall(() => ({ key: null })),
  "a key is replayed for another request": onRecords(({ create }) => ({
    create: (fields: any, key: any, author: any) =>
      create(fields, key && { ...key, fingerprint: "any" }, author),
  })),
  "a key expires an hour early": onStoredKey(
    "created_at = strftime('%Y-%m-%dT%H:%M:%fZ', created_at, '-1 hours')",
  ),
  "a key never expires": onStoredKey("created_at = '9999-01-01T00:00:00.000Z'"),
  "a key keeps a deleted user": onStoredKey("user_id = null"),
  "a reference is given twice": {
    sql: "drop index users_by_reference",
    restartSql:
      "create unique index users_by_reference on users (reference) where reference is not null",
  },
  "an email is given again in another spelling": trigger(
    "insert on users",
    "update users set email_key = email where id = new.id",
  ),
  "the id of a deleted user is given again": trigger(
    "delete on users",
    "update sqlite_sequence set seq = old.id - 1 where name = 'users' and seq = old.id",
  ),
  "totals have orders in their last status": trigger(
    "update of status on orders",
    "update buckets set ids = ids + 1 where list = old.status",
  ),
  "totals have deleted users": trigger(
    "delete on users",
    "update buckets set ids = ids - 1 where list = 'users'",
  ),
  "an update that fails on a full disk is acknowledged": {
    async send(call, send) {
      const outcome = await send(call);
      if (outcome.code !== "unavailable" || call.method !== "PATCH") return outcome;
      return { ...(await send({ ...call, kind: "get", query: call })), replayed: false };
    },
  },
  "updated_at goes back": trigger(
    "update of version on orders",
    "update orders set updated_at = created_at where id = old.id",
  ),
  "a change is missing": trigger(
    "insert on changes when new.id % 5 = 0",
    "delete from changes where id = new.id",
  ),
  "a change has no token": onChange("token = null"),
  "a change names other fields": onChange("fields = fields % 127 + 1", "new.fields is not null"),
  "the history of an order is that of a user": {
    store: ({ changes }) => ({
      changes: {
        ...changes,
        listOf: (query, ...rest) => changes.listOf({ ...query, table: "users" }, ...rest),
      },
    }),
  },
  "a deletion is an update": onChange("type = 2", "new.type = 3"),
  "changes are deleted too early": onExpiry(({ changes }) => changes.deleteExpired(new Date(8e15))),
  "a client that has missed changes gets no error": {
    async send(call, send) {
      const outcome = await send(call);
      const { after: _, ...query } = call.query ?? {};
      return outcome.code === "changes_expired" ? send({ ...call, query }) : outcome;
    },
  },
  "a restart loses an update": { restartSql: "update users set name = null, version = 1" },
  "a restart forgets keys": { restartSql: "delete from idempotency_keys" },
  "a restart begins a new feed": { restartSql: "update feed set name = 'another'" },
  "the order of a list is ignored": onQuery(({ sort: _ }) => ({ sort: "id" })),
  "the status is ignored with a user": onQuery(({ user_id }) =>
    user_id === undefined ? {} : { status: undefined },
  ),
  "one of several statuses is ignored": onQuery(({ status }) =>
    status === undefined ? {} : { status: status.slice(0, 2) },
  ),
  "a list has orders of the end of its time": onQuery(({ created_to }) =>
    created_to === undefined ? {} : { created_to: created_to.replace("Z", "~") },
  ),
  "sums have no refunds": onSums((text) => text.replace(/"refunded":\d+/g, '"refunded":0')),
  "sums leave out what is canceled": onSums((text) =>
    JSON.stringify(JSON.parse(text).filter(({ status }: Row) => status !== "canceled")),
  ),
  "PUT keeps what it lacks": onCall(({ method }) => (method === "PUT" ? { method: "PATCH" } : {})),
  "an update is made from an older record": onRecords(({ get, update }) => ({
    async update(id: number, edit: any, ...rest: any[]) {
      const before = await get(id);
      return update(
        id,
        (now: any) => edit(before === null ? now : JSON.parse(before.json)),
        ...rest,
      );
    },
  })),
  "U27: a refund of -0 is a change": onEdit((edit, before) => {
    const fields = edit(before);
    return fields.refunded === 0 ? { ...fields, refunded: -0 } : fields;
  }),
  "U5: an import makes one record of different ones": onImport(async (call, send) => ({
    results: await importEach(call, send),
  })),
  "U28: an import does not know the keys that it frees": onImport(async (call, send) => {
    const results = await importEach({ ...call, dryRun: true }, send);
    const lines = call.lines.filter((_: Row, at: number) => results[at] !== "rejected");
    const outcome = await send({ ...call, lines });
    const made = outcome.results?.values();
    const all = results.map((one) => (one === "rejected" ? one : made?.next().value));
    return made === undefined ? outcome : { results: all };
  }),
  "U28: an import writes what comes twice each time": onImport(async (call, send) => {
    const texts = call.lines.map((line: Row) => JSON.stringify(line));
    const twice = call.lines.find((_: Row, at: number) => texts.indexOf(texts[at]) < at);
    const other = { ...twice, metadata: { twice: "1" } };
    if (twice !== undefined) await send({ ...call, lines: [other] });
    return send(call);
  }),
  "an import without update updates": onCall(() => ({ update: true })),
  "an import with update does not": onCall(() => ({ update: false })),
  "a dry run stores": onCall(() => ({ dryRun: false })),
};

/** Opens a database with the fault. */
export async function plant(
  { store, sql, restartSql }: Fault,
  path: string,
  isFirst: boolean,
  open: () => Promise<Store>,
): Promise<Store> {
  if (restartSql !== undefined && !isFirst) runSql(path, restartSql);
  const opened = await open();
  if (sql !== undefined) runSql(path, sql);
  return { ...opened, ...store?.(opened) };
}

export function withFault({ send }: Fault, open: OpenPort): OpenPort {
  if (send === undefined) return open;
  return async (clock) => {
    const port = await open(clock);
    return { ...port, send: (call) => send(call, port.send) };
  };
}
