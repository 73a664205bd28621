// The store on a Citus cluster: the contract, and how many shards each operation asks. In one file, because only one
// process at a time can use the databases of the cluster.
import { describe, expect, test } from "bun:test";
import type { Maybe } from "../../src/maybe.ts";
import { openPostgres } from "../../src/postgres/backend.ts";
import { createCitusOrderStore } from "../../src/postgres/citus/orders.ts";
import { createCitusUserStore } from "../../src/postgres/citus/users.ts";
import { connect, type Database, type Session } from "../../src/postgres/connection.ts";
import { createContext } from "../../src/postgres/context.ts";
import { newUser, orderFields, rename, setPaid, userFields } from "../contract/open.ts";
import { expectRejection } from "../expect-error.ts";
import { storeOptions } from "../open-store.ts";
import { storeContract } from "../store.contract.ts";
import {
  citusUrl,
  lockUserOnWorkers,
  openCitusStore,
  releaseCitusDatabase,
  runOnCitus,
  runOnWorkers,
  takeCitusDatabase,
} from "./citus.ts";

type Statement = Parameters<Session["all"]>;

/** Remembers the statements of all sessions, but for `set`. */
function recorded(db: Database, statements: Statement[]): Database {
  const recordedSession = (session: Session): Session => ({
    ...session,
    all(...statement) {
      if (!statement[0].startsWith("set ")) statements.push(statement);
      return session.all(...statement);
    },
    first(...statement) {
      statements.push(statement);
      return session.first(...statement);
    },
  });
  return {
    ...db,
    run: (access, work, options) =>
      db.run(access, (session) => work(recordedSession(session)), options),
    runAdmitted: (access, work, options) =>
      db.runAdmitted(access, (session) => work(recordedSession(session)), options),
  };
}

test.if(citusUrl !== null)(
  "users and orders ask as few shards of Citus as documented",
  async () => {
    const databaseUrl = new URL(await takeCitusDatabase());
    databaseUrl.searchParams.delete("layout");
    const real = connect({ databaseUrl: databaseUrl.href });
    const statements: Statement[] = [];
    const db = recorded(real, statements);
    const now = () => new Date();
    const context = createContext({ db, now });
    const users = createCitusUserStore(context);
    const orders = createCitusOrderStore(context);

    /** @returns the number of tasks of each statement; 0 if the coordinator performs it alone */
    async function tasksOf(operation: Maybe<unknown>): Promise<number[]> {
      await operation;
      const plans = statements.splice(0).map(async ([statement, ...values]) => {
        const lines = await real.run("read", (session) =>
          session.all<{ "QUERY PLAN": string }>(`explain ${statement}`, ...values),
        );
        const counts = lines.map((line) => /Task Count: (\d+)/.exec(line["QUERY PLAN"])?.[1] ?? 0);
        return counts.reduce<number>((sum, count) => sum + Number(count), 0);
      });
      return Promise.all(plans);
    }

    const fields = userFields();
    const { record: user } = await users.create(fields, null);
    const { record: order } = await orders.place(orderFields(user.id), null);
    const key = (name: string) => ({ owner: "a".repeat(64), key: name, fingerprint: name });
    const page = { limit: 10, offset: 0 };
    const [{ shards = 0 } = {}] = await real.run("read", (session) =>
      session.all<{ shards: number }>(
        "select count(*)::integer as shards from pg_dist_shard where logicalrelid = 'orders'::regclass",
      ),
    );
    statements.length = 0;
    expect(await tasksOf(users.get(user.id))).toEqual([1]);
    expect(await tasksOf(users.list({ ...page, email: fields.email }))).toEqual([1]);
    expect(await tasksOf(users.list(page))).toEqual([0, 1]);
    // The last statements of a create with a key update the total and record the change. An update of `users` is one task on all servers.
    expect(await tasksOf(users.create(userFields(), key("u")))).toEqual([0, 1, 1, 0, 0]);
    // The update, the change of its result on the coordinator, and the result.
    expect(await tasksOf(users.update(user.id, rename, null))).toEqual([0, 1, 3]);
    expect(await tasksOf(orders.get(order.id))).toEqual([1]);
    // Not where the id leads to, and not in the directory; then that the server of its bucket has recovered.
    expect(await tasksOf(orders.get(1))).toEqual([1, 1, 1]);
    const twice = [order.id, order.id];
    expect(await tasksOf(Promise.all(twice.map((id) => orders.get(id))))).toEqual([1, 1]);
    const many = Array.from({ length: 20 }, () => order.id);
    expect(await tasksOf(Promise.all(many.map((id) => orders.get(id))))).toEqual([shards]);
    // The order, the total of its bucket and the change are three tasks on one shard.
    expect(await tasksOf(orders.place(orderFields(user.id), null))).toEqual([1, 0, 3]);
    expect(await tasksOf(orders.place(orderFields(user.id), key("o")))).toEqual([0, 1, 3]);
    // The user, the lock of batches, the numbers, the keys and the orders, which are copied, the totals, and the changes.
    const keyed = ["a", "b", "c"].map((name) => orders.place(orderFields(user.id), key(name)));
    expect(await tasksOf(Promise.all(keyed))).toEqual([1, 0, 0, 0, 0, 1, 0]);
    const several = [1, 2, 3].map(() => users.create(userFields(), null));
    expect(await tasksOf(Promise.all(several))).toEqual([1, 0, 0, 0, 0, 0]);
    const keyedUsers = ["d", "e", "f"].map((name) => users.create(userFields(), key(name)));
    expect(await tasksOf(Promise.all(keyedUsers))).toEqual([1, 0, 0, 0, 0, 0, 0]);
    // Citus inserts the result of an update, the change, with another task.
    expect(await tasksOf(orders.update(order.id, setPaid, null))).toEqual([1, 3]);
    expect(await tasksOf(orders.list({ ...page, user_id: user.id }))).toEqual([1]);
    const paid = { ...page, user_id: user.id, status: "paid" } as const;
    expect(await tasksOf(orders.list(paid))).toEqual([1]);
    // A full page needs a count. There are six orders, of which one is paid.
    expect(await tasksOf(orders.list({ ...page, limit: 6, user_id: user.id }))).toEqual([1]);
    expect(await tasksOf(orders.list({ ...page, limit: 2, user_id: user.id }))).toEqual([1, 1]);
    expect(await tasksOf(orders.list(page))).toEqual([shards, shards]);
    const pages = [page, page, { ...page, limit: 1 }].map((query) => orders.list(query));
    expect(await tasksOf(Promise.all(pages))).toEqual([shards, shards, shards]);
    expect(await tasksOf(orders.list({ ...page, status: "paid" }))).toEqual([shards, shards]);
    expect(await tasksOf(orders.list({ ...page, offset: 1 }))).toEqual([shards, shards, shards]);
    await real.close();
    releaseCitusDatabase(databaseUrl.href);
  },
  60_000,
);

test.if(citusUrl !== null)(
  "orders.list rejects an offset when every shard would read more than 10,000 ids",
  async () => {
    await using it = await openCitusStore();
    const { databaseUrl, store } = it;
    const { id } = await newUser(store);
    await store.orders.place(orderFields(id), null);
    const setTotal = `update order_totals set pending = 15000 where bucket = ${id % 1024}`;
    await runOnCitus(databaseUrl, setTotal);
    const list = (offset: number) => store.orders.list({ limit: 10, offset });
    expect(await list(0)).toMatchObject({ total: 15_000, maxOffset: 10_000 });
    await expectRejection(
      Promise.resolve(list(10_001)),
      "validation_failed",
      /offset must be at most 10,000 on this database: use after/,
    );
    expect(await list(10_000)).toMatchObject({ total: 15_000 });
    expect(await list(15_000)).toMatchObject({ total: 15_000, records: "" });
  },
  60_000,
);

test.if(citusUrl !== null)(
  "orders.get rejects unless it finds the order when a commit was interrupted",
  async () => {
    await using it = await openCitusStore();
    const { databaseUrl, store } = it;
    const user = await newUser(store);
    const { record } = await store.orders.place(orderFields(user.id), null);
    const findUnknown = async () => store.orders.get(record.id + 1024);
    // The number in the name is not that of a node, so that Citus does not recover it.
    await runOnWorkers(databaseUrl, "begin", "prepare transaction 'citus_99_test'");
    try {
      await Bun.sleep(1_100);
      await expectRejection(findUnknown(), "unavailable", /is recovering/);
      expect(await store.orders.get(record.id)).toEqual(record);
      const several = Array.from({ length: 20 }, () => store.orders.get(record.id));
      const missing = findUnknown();
      expect(await Promise.all(several)).toEqual(several.map(() => record));
      await expectRejection(missing, "unavailable", /is recovering/);
    } finally {
      await runOnWorkers(databaseUrl, "rollback prepared 'citus_99_test'");
    }
    expect(await findUnknown()).toBeNull();
  },
  60_000,
);

test.if(citusUrl !== null)(
  "orders.place succeeds before a user is unlocked when other calls of its batch are for this user",
  async () => {
    await using it = await openCitusStore();
    const { databaseUrl, store } = it;
    const lockedUser = await newUser(store);
    const ids = [(await newUser(store)).id, (await newUser(store)).id];
    const unlock = await lockUserOnWorkers(databaseUrl, lockedUser.id);
    const place = (id?: number) => store.orders.place(orderFields(Number(id)), null);
    const rejected = expectRejection(place(lockedUser.id), "unavailable");
    await Promise.all(Array.from({ length: 6 }, (_, at) => place(ids[at % 2])));
    await rejected;
    await unlock();
    await place(lockedUser.id);
    expect((await store.orders.list({ limit: 1, offset: 0 })).total).toBe(7);
  },
  60_000,
);

test.if(citusUrl !== null)(
  "open names the layout when the URL of a new database lacks it",
  async () => {
    await using it = await openCitusStore();
    const url = new URL(it.databaseUrl);
    url.searchParams.delete("layout");
    // A schema without tables is like a new database.
    url.searchParams.set("search_path", "pg_temp");
    const opening = openPostgres({ ...storeOptions, databaseUrl: url.href });
    await expectRejection(
      opening,
      "operator",
      /the database has the extension citus: add \?layout=citus to its URL$/,
    );
  },
);

describe.if(citusUrl !== null)("with TEST_CITUS_URL", () => {
  storeContract("citus", async (options) => {
    const it = await openCitusStore(options);
    return { ...it.store, close: it[Symbol.asyncDispose] };
  });
});
