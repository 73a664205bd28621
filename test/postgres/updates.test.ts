// Updates and deletes of records that other transactions have locked, and of others meanwhile.
import { describe, expect, test } from "bun:test";
import type { Store } from "../../src/store.ts";
import { newUser, orderFields, setPaid, userFields } from "../contract/open.ts";
import { expectRejection } from "../expect-error.ts";
import { cluster, type Harness, makeHarness, waitingBackends } from "./postgres-harness.ts";

/** Connections that wait for a lock until the lock timeout of the connection. */
const longWaits = `${waitingBackends} and query not like '%lock_timeout%'`;

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
    const store = await world.open({ databaseUrl: `${world.url}&lock_timeout=20000` });
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
    const store = await world.open({ databaseUrl: `${world.url}&lock_timeout=20000` });
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
    const store = await world.open({ databaseUrl: `${world.url}&lock_timeout=400` });
    const { id } = await newOrder(store, (await newUser(store)).id);
    const pay = () => store.orders.update(id, setPaid, null);
    const held = await world.hold(`select from orders where id = ${id} for update`);
    const waiting = pay();
    await untilWaiting(world, 1);
    await expectRejection(waiting, "unavailable", "the database is busy");
    await held.commit();
    expect((await pay())?.version).toBe(2);
  });
});
