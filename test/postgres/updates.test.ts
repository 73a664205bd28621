// Updates and deletes that share a statement: each has its own outcome.
import { describe, expect, test } from "bun:test";
import { newUser, orderFields, rename, userFields } from "../contract/open.ts";
import { expectRejection } from "../support/expect-error.ts";
import { ifMatch } from "../support/preconditions.ts";
import { cluster, type Harness, makeHarness, patient, storedTime } from "./postgres-harness.ts";

/** Connections report what they have done when they are closed. */
async function statisticOf({ url }: Harness, name: "deadlocks" | "xact_rollback") {
  await cluster?.disconnect(url);
  const database = new URL(url).pathname.slice(1);
  const select = `select ${name}::integer as value from pg_stat_database where datname = '${database}'`;
  return (await cluster?.run<{ value: number }>(cluster.url, select))?.[0]?.value;
}

describe.if(cluster !== null)("updates", () => {
  test("of one turn share a transaction, and each has its own outcome", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    const { users } = store;
    const made = await Promise.all(Array.from({ length: 7 }, () => newUser(store)));
    const ids = made.map(({ id }) => id);
    const [one = 0, two = 0, stale = 0, taker = 0, mover = 0, buyer = 0, gone = 0] = ids;
    await store.orders.create(orderFields(buyer), null);
    const move = (id: number, email: string) =>
      users.update(id, (user) => ({ ...user, email }), null);
    const keyOf = (key: string) => ({ owner: "a", key, fingerprint: "f" });
    world.commits.length = 0;
    const done = [
      users.update(one, rename, null, keyOf("1")),
      users.update(two, (user) => user, null, keyOf("2")),
      users.update(999, rename, null, keyOf("3")),
      users.remove(gone, null),
      move(mover, "new@example.com"),
    ];
    const rejected = [
      [users.update(stale, rename, ifMatch(7)), "version_mismatch"],
      [users.remove(buyer, null), "user_has_orders"],
      [move(taker, made[0]?.email ?? ""), "email_taken"],
    ] as const;
    await Promise.all(rejected.map(([result, code]) => expectRejection(result, code)));
    const records = await Promise.all(done);
    expect(records.map((record) => record?.version)).toEqual([2, 1, undefined, 1, 2]);
    // A change of the email can wait for others, so it runs alone, and so do the two deletes.
    expect(world.commits.toSorted()).toEqual([1, 1, done.length + rejected.length - 2]);
    const replayed = await Promise.all([
      users.update(one, rename, null, keyOf("1")),
      users.update(two, rename, null, keyOf("2")),
    ]);
    expect(replayed).toMatchObject([2, 1].map((version) => ({ version, replayed: true })));
    expect((await users.list({ limit: 1, offset: 0 })).total).toBe(made.length - 1);
    expect(await store.check()).toEqual([]);
  });

  test("of two replicas do not deadlock when they change the same records in another order", async () => {
    await using world = await makeHarness();
    const before = await statisticOf(world, "deadlocks");
    const open = () => world.open({ databaseUrl: world.url + patient });
    const stores = [await open(), await open()] as const;
    const made = await Promise.all(Array.from({ length: 32 }, () => newUser(stores[0])));
    const ids = made.map(({ id }) => id);
    const rounds = 6;
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
    expect(await stores[1].check()).toEqual([]);
    expect(await statisticOf(world, "deadlocks")).toBe(before as number);
  });

  test("that are rejected leave no error on the server, also deletes of users with orders", async () => {
    await using world = await makeHarness();
    const before = await statisticOf(world, "xact_rollback");
    const store = await world.open();
    const buyer = await newUser(store);
    const user = await newUser(store);
    await store.orders.create(orderFields(buyer.id), null);
    for (const preconditions of [null, ifMatch(1)]) {
      const removing = store.users.remove(buyer.id, preconditions);
      await expectRejection(removing, "user_has_orders");
    }
    const creating = store.users.create(userFields({ email: buyer.email }), null);
    await expectRejection(creating, "email_taken");
    await expectRejection(store.orders.create(orderFields(999), null), "validation_failed");
    expect(await store.users.remove(user.id, null)).not.toBeNull();
    // One for each delete that was rejected. After an error of the server, it would have been repeated.
    expect(await statisticOf(world, "xact_rollback")).toBe((before as number) + 2);
  });

  test("reject the delete of a user when an order of another transaction comes between", async () => {
    await using world = await makeHarness();
    const store = await world.open({ databaseUrl: world.url + patient });
    const { id } = await newUser(store);
    const held = await world.hold(`
      insert into orders (
        id, user_id, currency, items, total, status, metadata, version, created_at, updated_at
      )
      values (1000, ${id}, 'EUR', '[]', 0, 'paid', '{}', 1, ${storedTime}, ${storedTime})
    `);
    const rejected = expectRejection(store.users.remove(id, null), "user_has_orders");
    await world.untilWaiting();
    await held.commit();
    await rejected;
    expect((await store.users.get(id))?.version).toBe(1);
  });
});
