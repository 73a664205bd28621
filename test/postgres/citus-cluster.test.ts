// The store on a Citus cluster: the contract, how many shards each operation asks, locks of workers, and a database that is
// distributed in place. In one file, because only one process at a time can use the databases of the cluster.
import { describe, expect, test } from "bun:test";
import { SQL } from "bun";
import type { Store } from "../../src/domain/store.ts";
import { openPostgres } from "../../src/postgres/backend.ts";
import { severalServers } from "../../src/postgres/server/citus.ts";
import { connect } from "../../src/postgres/server/connection.ts";
import { sqlState } from "../../src/postgres/server/errors.ts";
import { distributePostgres } from "../../src/postgres/whole/migrate.ts";
import {
  all,
  newUser,
  orderFields,
  rename,
  setFields,
  setPaid,
  userFields,
} from "../contract/open.ts";
import { storeContract } from "../contract/store.contract.ts";
import { expectRejection } from "../support/expect-error.ts";
import { storeOptions } from "../support/open-store.ts";
import {
  citusUrl,
  lockUserOnWorkers,
  makePlainDatabase,
  openCitusStore,
  releaseCitusDatabase,
  takeCitusDatabase,
} from "./citus.ts";
import { runOn } from "./instance.ts";
import { recordStatements } from "./postgres-harness.ts";

async function contentsOf({ users, orders, changes }: Store): Promise<unknown> {
  const { maxOffset: _, ...page } = await orders.list(all);
  return [await users.list(all), page, await changes.list(all)];
}

describe.if(citusUrl !== null)("with TEST_CITUS_URL", () => {
  test("writes of one order are committed in two phases, as they are on a worker and the coordinator", async () => {
    await using it = await openCitusStore();
    const { store, databaseUrl } = it;
    const { id } = await newUser(store);
    const other = await newUser(store);
    const imported = { ...orderFields(id), reference: "1" };
    await store.bulk.orders.import([imported]);
    const moved = await store.orders.create(orderFields(id), null);
    const note = () => ({ note: crypto.randomUUID() });
    const prepared = () => runOn(databaseUrl, "select from pg_dist_transaction");
    const writes = [
      () => store.orders.create(orderFields(id), null),
      () => store.orders.update(moved.id, setFields({ metadata: note() }), null),
      () =>
        store.orders.update(
          moved.id,
          (order) => ({ ...order, user_id: id + other.id - order.user_id }),
          null,
        ),
      () => store.bulk.orders.import([{ ...imported, reference: crypto.randomUUID() }]),
      () => store.bulk.orders.import([{ ...imported, metadata: note() }], { update: true }),
    ];
    for (const write of writes) {
      await runOn(databaseUrl, "delete from pg_dist_transaction");
      // Citus deletes the record when it recovers transactions, which it does now and then.
      do await write();
      while ((await prepared()).length === 0);
    }
  });

  test("users and orders ask as few shards of Citus as documented", async () => {
    const databaseUrl = await takeCitusDatabase();
    const real = connect({ databaseUrl });
    const { users, orders, sent } = recordStatements(real, undefined, severalServers);

    /** @returns the number of shards that each statement asks; 0 if the coordinator performs it alone */
    async function tasksOf(...operations: unknown[]): Promise<number[]> {
      await Promise.all(operations);
      const counts: number[] = [];
      for (const { statement, values } of sent.splice(0)) {
        const plan = await real.run("read", (session) =>
          session.all<{ "QUERY PLAN": string }>(`explain ${statement}`, ...values),
        );
        const tasks = plan.map((line) => /Task Count: (\d+)/.exec(line["QUERY PLAN"])?.[1] ?? 0);
        counts.push(Math.max(...tasks.map(Number)));
      }
      return counts;
    }

    const fields = userFields();
    const user = await users.create(fields, null);
    const order = await orders.create(orderFields(user.id, { reference: "R" }), null);
    const other = await users.create(userFields(), null);
    const key = (name: string) => ({ owner: "a".repeat(64), key: name, fingerprint: name });
    const [{ shards = 0 } = {}] = await runOn<{ shards: number }>(
      databaseUrl,
      "select count(*)::integer as shards from pg_dist_shard where logicalrelid = 'orders'::regclass",
    );
    sent.length = 0;
    const page = { limit: 10, offset: 0 };
    const ofUser = { ...page, user_id: user.id };
    const three = ["a", "b", "c"];
    for (const [expected, run] of [
      [[1], () => [users.get(user.id)]],
      [[1], () => [users.list({ ...page, email: fields.email })]],
      [[0, 1], () => [orders.get(order.id)]],
      [[0], () => [orders.get(999)]],
      [[1], () => [orders.list(ofUser)]],
      [[1], () => [orders.list({ ...ofUser, status: ["paid"], offset: 1 })]],
      [[1], () => [orders.list({ ...ofUser, status: ["paid", "pending"], offset: 1 })]],
      [[1], () => [orders.list({ ...ofUser, created_from: "2026", offset: 1 })]],
      [[0, 1], () => [orders.list({ ...page, reference: "R" })]],
      [[0, 1], () => [orders.list({ ...page, id: [order.id, 999], status: ["paid"] })]],
      [[shards], () => [orders.list(page)]],
      [[shards], () => [orders.list({ ...page, offset: 1 })]],
      [[shards], () => [orders.list({ ...page, status: ["paid", "pending"], offset: 1 })]],
      [[shards], () => [orders.list({ ...page, created_from: "2026" })]],
      [[1, 0], () => [orders.create(orderFields(user.id), null)]],
      [[1, 0], () => three.map((name) => orders.create(orderFields(user.id), key(name)))],
      [[1], () => three.map((name) => users.create(userFields(), key(`u${name}`)))],
      [[0, 1, 1], () => [orders.update(order.id, setPaid, null)]],
      // Not in its batch, but then alone.
      [[0, 1, 0, 1, 1, 1], () => [orders.update(order.id, setFields({ user_id: other.id }), null)]],
      [[1, 1], () => [users.update(user.id, rename, null)]],
    ] as const) {
      expect(await tasksOf(...run()), `${run}`).toEqual(expected as unknown as number[]);
    }
    await real.close();
    releaseCitusDatabase(databaseUrl);
  });

  test("a write of a locked user fails by the lock timeout on its worker, and others of its batch succeed", async () => {
    await using it = await openCitusStore();
    const { databaseUrl, store } = it;
    const locked = await newUser(store);
    const ids = [(await newUser(store)).id, (await newUser(store)).id];
    const unlock = await lockUserOnWorkers(databaseUrl, locked.id);
    const place = (id?: number) => store.orders.create(orderFields(Number(id)), null);
    const rejected = expectRejection(place(locked.id), "unavailable", /^the database is busy/);
    await Promise.all(Array.from({ length: 6 }, (_, at) => place(ids[at % 2])));
    // That of a statement would end a wait as well, after 5 s.
    expect(sqlState(await rejected)).toBe("55P03");
    const renaming = Promise.resolve(store.users.update(locked.id, rename, null));
    expect(sqlState(await expectRejection(renaming, "unavailable"))).toBe("55P03");
    await unlock();
    await place(locked.id);
    expect((await store.orders.list({ limit: 1, offset: 0 })).total).toBe(7);
  });

  test("distribute keeps all rows, and servers that run meanwhile must be restarted", async () => {
    await using plain = await makePlainDatabase();
    const { databaseUrl } = plain;
    const open = () => openPostgres({ ...storeOptions, databaseUrl });
    const older = await open();
    const user = await newUser(older);
    const order = await older.orders.create(orderFields(user.id), null);
    const key = { owner: "a", key: "1", fingerprint: "f" };
    for (let at = 0; at < 20; at += 1) {
      const { id } = await newUser(older);
      await older.orders.create(orderFields(id, { reference: `R${at}` }), at === 0 ? key : null);
    }
    await older.orders.update(order.id, setPaid, null);

    const announced: number[][] = [];
    const onStart = (...counts: number[]) => void announced.push(counts);
    const distributing = () => distributePostgres(databaseUrl, onStart);
    await expectRejection(distributing(), "operator", /needs the extension citus, and workers/);
    await plain.addWorkers();
    const before = await contentsOf(older);
    // It waits for this transaction, and processes that start for it.
    const locking = new SQL(databaseUrl, { max: 1 });
    await locking.unsafe("begin; lock table users in share mode");
    const distributed = distributing();
    const waiting = "select from pg_locks where not granted and mode = 'AccessExclusiveLock'";
    while ((await runOn(databaseUrl, waiting)).length === 0) await Bun.sleep(5);
    await expectRejection(open(), "operator", /another session has locked tables/);
    await locking.close();
    expect([await distributed, await distributing()]).toEqual([true, false]);
    expect(announced).toEqual([[21, 2]]);
    const left = "select pg_relation_size('users') + pg_relation_size('orders') as bytes";
    expect(await runOn<object>(databaseUrl, left)).toEqual([{ bytes: "0" }]);

    const restart = "the database was distributed over several servers: restart user-api";
    for (const run of [
      async () => older.orders.get(order.id),
      async () => older.orders.list(all),
      () => older.orders.create(orderFields(user.id), null),
      () => older.orders.update(order.id, setPaid, null),
      () => older.users.create(userFields(), null),
      () => older.bulk.orders.import([{ ...orderFields(1), reference: "1" }]),
      () => older.checkUsable(),
    ]) {
      await expectRejection(run(), "unavailable", restart);
    }
    await older.close();
    const store = await open();
    expect(await contentsOf(store)).toEqual(before);
    expect(await store.check()).toEqual([]);
    const retried = store.orders.create(orderFields(2), key);
    expect(await retried).toMatchObject({ replayed: true, id: 2 });
    expect((await store.orders.create(orderFields(2), null)).id).toBe(22);
    const taken = store.orders.create(orderFields(2, { reference: "R0" }), null);
    await expectRejection(taken, "reference_taken");
    await store.close();
  });

  storeContract("citus", async (options) => {
    const it = await openCitusStore(options);
    return { ...it.store, close: it[Symbol.asyncDispose] };
  });
});
