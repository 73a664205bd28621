import { expect, test } from "bun:test";
import { type Order, type OrderQuery, orderStatuses } from "../../src/domain/order.ts";
import type { Store } from "../../src/domain/store.ts";
import { listed } from "../support/listed.ts";
import { makeRandom } from "../support/random.ts";
import {
  all,
  expectAscendingTimes,
  newUser,
  type Open,
  openWithClock,
  orderFields,
  setFields,
} from "./open.ts";

async function idsOf(store: Store, filter: Partial<OrderQuery>): Promise<readonly number[]> {
  const { rows, total } = await listed(store.orders.list({ ...all, ...filter }));
  expect(rows).toHaveLength(total);
  const last = await listed(
    store.orders.list({ ...filter, limit: 1, offset: Math.max(total - 1, 0) }),
  );
  if (total > 0) expect(last.rows).toEqual([rows.at(-1)]);
  return rows.map(({ id }) => id);
}

export function ordersContract(open: Open): void {
  test("orders.create and a concurrent users.remove leave no order without a user", async () => {
    await using it = await openWithClock(open);
    for (const orderFirst of [true, false]) {
      const { id } = await newUser(it.store);
      const place = () => it.store.orders.create(orderFields(id), null);
      const remove = () => it.store.users.remove(id, null);
      const [one, other] = orderFirst ? [place, remove] : [remove, place];
      const results = await Promise.allSettled([one(), other()]);
      expect(results.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
      const { total } = await it.store.orders.list({ ...all, user_id: id });
      expect(total).toBe((await it.store.users.get(id)) === null ? 0 : 1);
    }
  });

  test("orders.update does not move updated_at back when the clock goes back", async () => {
    await using it = await openWithClock(open);
    const user = await newUser(it.store);
    const record = await it.store.orders.create(orderFields(user.id), null);
    const edit = (order: Order) => ({ ...order, metadata: { v: `${order.version}` } });
    await expectAscendingTimes(it, it.store.orders, record.id, edit);
  });

  test("orders.update agrees with a model when orders move at random", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    const random = makeRandom(7);
    const users = [await newUser(store), await newUser(store), await newUser(store)];
    const model = new Map<number, Pick<Order, "user_id" | "status">>();
    const anyUser = () => users[random(users.length)]?.id ?? 0;
    for (let step = 0; step < 60; step += 1) {
      const user = anyUser();
      if (random(3) === 0 || model.size === 0) {
        const record = await store.orders.create(orderFields(user), null);
        model.set(record.id, { user_id: user, status: "pending" });
      } else {
        const id = 1 + random(model.size);
        const edit = { user_id: user, status: orderStatuses[random(5)] ?? "paid" };
        await store.orders.update(id, setFields(edit), null);
        model.set(id, edit);
      }
    }
    for (const { id } of users) {
      const owned = [...model].filter(([, { user_id }]) => user_id === id);
      expect(await idsOf(store, { user_id: id })).toEqual(owned.map(([order]) => order));
      for (const status of orderStatuses) {
        const matching = owned.filter(([, order]) => order.status === status);
        const found = await idsOf(store, { user_id: id, status });
        expect(found).toEqual(matching.map(([order]) => order));
      }
    }
    expect(await store.check()).toEqual([]);
  });

  test("close waits for writes in progress", async () => {
    const { store } = await openWithClock(open);
    const { id } = await newUser(store);
    const writes = [1, 2, 3].map(() => store.orders.create(orderFields(id), null));
    await store.checkUsable();
    await store.close();
    const ids = (await Promise.all(writes)).map(({ id }) => id);
    expect(new Set(ids).size).toBe(3);
  });
}
