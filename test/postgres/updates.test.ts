// Updates and deletes of records that other transactions have locked, and of others meanwhile.
import { describe, expect, test } from "bun:test";
import type { Store } from "../../src/store.ts";
import { newUser, orderFields, rename, setFields, setPaid, userFields } from "../contract/open.ts";
import { expectRejection } from "../expect-error.ts";
import { ifMatch } from "../preconditions.ts";
import {
  cluster,
  type Harness,
  makeHarness,
  patient,
  waitingBackends,
} from "./postgres-harness.ts";

/** Connections that wait for a lock until the lock timeout of the connection. */
const longWaits = `${waitingBackends} and query not like '%lock_timeout%'`;

const countDeadlocks = `
  select deadlocks
  from pg_stat_database
  where datname = current_database()
`;

/** Twice as many are more than the updates that run at the same time. */
const LOCKED = 4;

async function newOrder({ orders }: Store, userId: number) {
  return (await orders.place(orderFields(userId), null)).record;
}

async function untilWaiting({ run }: Harness, backends: number): Promise<void> {
  while ((await run(longWaits)).length !== backends) await Bun.sleep(5);
}

describe.if(cluster !== null)("updates", () => {
  test("succeed before a lock is released when more others wait for it than may run at the same time", async () => {
    await using world = await makeHarness();
    const store = await world.open({ databaseUrl: world.url + patient });
    const { users, orders } = store;
    const free = await newUser(store);
    const gone = await newUser(store);
    const order = await newOrder(store, free.id);
    const lockedUsers = await Promise.all(Array.from({ length: LOCKED }, () => newUser(store)));
    const places = lockedUsers.map(() => newOrder(store, free.id));
    const lockedOrders = await Promise.all(places);
    const idsOf = (records: readonly { readonly id: number }[]) =>
      records.map(({ id }) => id).join();
    const held = await world.hold(`
      select from users where id in (${idsOf(lockedUsers)}) for update;
      select from orders where id in (${idsOf(lockedOrders)}) for update
    `);
    const pay = (id: number) => orders.update(id, setPaid, null);
    let locked = true;
    const waiting = [
      ...lockedUsers.map(({ id }, at) =>
        at % 2 === 0 ? users.update(id, () => userFields(), null) : users.remove(id, null),
      ),
      ...lockedOrders.map(({ id }) => pay(id)),
    ].map(async (changed) => {
      expect(await changed).not.toBeNull();
      expect(locked).toBe(false);
    });
    await untilWaiting(world, 2);
    for (let round = 0; round < 3; round += 1)
      await users.update(free.id, () => userFields(), null);
    await pay(order.id);
    await users.remove(gone.id, null);
    expect(await world.run(longWaits)).toHaveLength(2);
    locked = false;
    await held.commit();
    await Promise.all(waiting);
    expect(await store.check()).toEqual([]);
  });

  test("share a connection with creates when all of them wait for one row", async () => {
    await using world = await makeHarness();
    const store = await world.open({ databaseUrl: world.url + patient });
    const [one, other] = [await newUser(store), await newUser(store)];
    const held = await world.hold(`select from users where id = ${one.id} for update`);
    const heldOther = await world.hold(`select from users where id = ${other.id} for update`);
    const waiting: Promise<unknown>[] = [store.users.update(one.id, () => userFields(), null)];
    await untilWaiting(world, 1);
    for (let order = 0; order < 2; order += 1) {
      waiting.push(store.orders.place(orderFields(one.id), null));
    }
    const changed = store.users.update(other.id, () => userFields(), null);
    // So there is a connection for the other row.
    const updates = `${longWaits} and query like '%update users%'`;
    while ((await world.run(updates)).length !== 2) await Bun.sleep(5);
    await heldOther.commit();
    await changed;
    await held.commit();
    await Promise.all(waiting);
  });

  test("of an order wait for its row, and fail when the lock timeout has passed", async () => {
    await using world = await makeHarness();
    const store = await world.open({ databaseUrl: `${world.url}&lock_timeout=2000` });
    const { id } = await newOrder(store, (await newUser(store)).id);
    const pay = () => store.orders.update(id, setPaid, null);
    const held = await world.hold(`select from orders where id = ${id} for update`);
    const rejected = expectRejection(pay(), "unavailable", "the database is busy");
    await untilWaiting(world, 1);
    await rejected;
    await held.commit();
    expect((await pay())?.version).toBe(2);
  });

  test("of one turn share a transaction, and each has its own outcome", async () => {
    await using world = await makeHarness();
    const store = await world.open({ databaseUrl: world.url + patient });
    const { users } = store;
    const made = await Promise.all(Array.from({ length: 9 }, () => newUser(store)));
    const ids = made.map(({ id }) => id);
    const [one = 0, two = 0, stale = 0, taker = 0, mover = 0, locked = 0, changed = 0] = ids;
    const [buyer = 0, gone = 0] = ids.slice(7);
    await newOrder(store, buyer);
    const held = await world.hold(`select from users where id = ${locked} for update`);
    const replica = await world.hold(`
      update users set version = 2 where id = ${changed};
      insert into change_outbox (type, record_id, version, created_at) values (2, ${changed}, 2, 0)
    `);
    const rename = (id: number, email?: string) =>
      users.update(id, (user) => ({ ...user, name: "x", ...(email && { email }) }), null);
    world.commits.length = 0;
    const waiting = [rename(locked), rename(changed)];
    const done = [rename(one), rename(two), rename(999), rename(mover, "new@example.com")];
    const rejected = [
      [users.update(stale, (user) => user, ifMatch(7)), "version_mismatch"],
      [rename(taker, made[0]?.email), "email_taken"],
      [users.remove(buyer, null), "user_has_orders"],
    ] as const;
    done.push(users.remove(gone, null));
    for (const [result, code] of rejected) await expectRejection(result, code);
    const records = await Promise.all(done);
    expect(records.map((record) => record?.version)).toEqual([2, 2, undefined, 2, 1]);
    expect(world.commits[0]).toBe(waiting.length + done.length + rejected.length);
    await untilWaiting(world, 2);
    await replica.commit();
    expect((await waiting[1])?.version).toBe(3);
    await held.commit();
    expect((await waiting[0])?.version).toBe(2);
    expect((await users.list({ limit: 1, offset: 0 })).total).toBe(made.length - 1);
    expect(await store.check()).toEqual([]);
  });

  test("of a large record run alone, also if it gets small", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    const keys = Array.from({ length: 30 }, (_, at) => [`key${at}`, "x".repeat(400)] as const);
    const metadata = Object.fromEntries(keys);
    const [large, small] = [await newUser(store, { metadata }), await newUser(store)];
    const order = await newOrder(store, small.id);
    const fields = { ...orderFields(small.id), metadata };
    const largeOrder = (await store.orders.place(fields, null)).record;
    world.commits.length = 0;
    const shrink = (id: number) =>
      store.users.update(id, (user) => ({ ...user, metadata: { small: "1" } }), null);
    const users = await Promise.all([large.id, small.id, 999].map(shrink));
    expect(users.map((user) => user?.version)).toEqual([2, 2, undefined]);
    expect(world.commits).toEqual([3, 1]);
    const pay = (id: number) =>
      store.orders.update(id, setFields({ status: "paid", metadata: {} }), null);
    const orders = await Promise.all([largeOrder.id, order.id, 999].map(pay));
    expect(orders.map((paid) => paid?.version)).toEqual([2, 2, undefined]);
    expect(world.commits).toEqual([3, 1, 3, 1]);
  });

  test("of three replicas wait for a locked row, also behind each other", async () => {
    await using world = await makeHarness();
    const stores = [await world.open(), await world.open(), await world.open()] as const;
    const [first] = stores;
    const user = await newUser(first);
    const held = await world.hold(`select from users where id = ${user.id} for update`);
    const updates = stores.map(({ users }) => users.update(user.id, () => userFields(), null));
    await Bun.sleep(600);
    await held.commit();
    for (const update of await Promise.all(updates)) expect(update).not.toBeNull();
    expect((await first.users.get(user.id))?.version).toBe(4);
  });

  test("of two replicas do not deadlock when they change the same records in another order", async () => {
    await using world = await makeHarness();
    const stores = [await world.open(), await world.open()] as const;
    const made = await Promise.all(Array.from({ length: 32 }, () => newUser(stores[0])));
    const ids = made.map(({ id }) => id);
    const rounds = 10;
    const before = await world.run(countDeadlocks);
    await Promise.all(
      stores.map(async ({ users }, at) => {
        const order = at === 0 ? ids : ids.toReversed();
        for (let round = 0; round < rounds; round += 1) {
          await Promise.all(order.map((id) => users.update(id, rename, null)));
        }
      }),
    );
    const versions = await Promise.all(ids.map((id) => stores[0].users.get(id)));
    expect(new Set(versions.map((user) => user?.version))).toEqual(new Set([1 + 2 * rounds]));
    expect(await world.run(countDeadlocks)).toEqual(before);
    expect(await stores[1].check()).toEqual([]);
  }, 30_000);
});
