// Updates and deletes of records that other transactions have locked, and of others meanwhile.
import { describe, expect, test } from "bun:test";
import type { Store } from "../../src/store.ts";
import { newUser, orderFields, rename, setPaid, userFields } from "../contract/open.ts";
import { expectRejection } from "../expect-error.ts";
import { ifMatch } from "../preconditions.ts";
import { cluster, makeHarness, patient } from "./postgres-harness.ts";

const countDeadlocks = `
  select deadlocks
  from pg_stat_database
  where datname = current_database()
`;

async function newOrder({ orders }: Store, userId: number) {
  return (await orders.place(orderFields(userId), null)).record;
}

describe.if(cluster !== null)("updates", () => {
  test("succeed before a lock is released when others of their batch wait for it", async () => {
    await using world = await makeHarness();
    const store = await world.open({ databaseUrl: world.urlWith(`max=10${patient}`) });
    const { users, orders } = store;
    const [free, gone, taken] = [await newUser(store), await newUser(store), await newUser(store)];
    const [order, takenOrder] = [await newOrder(store, free.id), await newOrder(store, free.id)];
    const held = await world.hold(`
      select from users where id = ${taken.id} for update;
      select from orders where id = ${takenOrder.id} for update
    `);
    const pay = (id: number) => orders.update(id, setPaid, null);
    let locked = true;
    const waiting = [
      users.update(taken.id, () => userFields(), null),
      users.remove(taken.id, null),
      pay(takenOrder.id),
    ].map(async (changed) => {
      expect(await changed).not.toBeNull();
      expect(locked).toBe(false);
    });
    const others = [
      users.update(free.id, () => userFields(), null),
      pay(order.id),
      users.remove(gone.id, null),
    ];
    for (const record of await Promise.all(others)) expect(record).not.toBeNull();
    locked = false;
    await held.commit();
    await Promise.all(waiting);
    expect(await store.check()).toEqual([]);
  });

  test("of an order wait for its row, and fail when the lock timeout has passed", async () => {
    await using world = await makeHarness();
    const store = await world.open({ databaseUrl: `${world.url}&lock_timeout=2000` });
    const { id } = await newOrder(store, (await newUser(store)).id);
    const pay = () => store.orders.update(id, setPaid, null);
    const held = await world.hold(`select from orders where id = ${id} for update`);
    const rejected = expectRejection(pay(), "unavailable", "the database is busy");
    await world.untilWaiting();
    await rejected;
    await held.commit();
    expect((await pay())?.version).toBe(2);
  });

  test("of one turn share a transaction, and each has its own outcome", async () => {
    await using world = await makeHarness();
    const store = await world.open({ databaseUrl: world.urlWith(`max=10${patient}`) });
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
    await Promise.all(rejected.map(([result, code]) => expectRejection(result, code)));
    const records = await Promise.all(done);
    expect(records.map((record) => record?.version)).toEqual([2, 2, undefined, 2, 1]);
    expect(world.commits[0]).toBe(waiting.length + done.length + rejected.length);
    await held.commit();
    expect((await waiting[0])?.version).toBe(2);
    await replica.commit();
    expect((await waiting[1])?.version).toBe(3);
    expect((await users.list({ limit: 1, offset: 0 })).total).toBe(made.length - 1);
    expect(await store.check()).toEqual([]);
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
