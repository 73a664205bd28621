import { expect, test } from "bun:test";
import { type Order, type OrderStatus, patchOrder } from "../../src/domain/order.ts";
import {
  all,
  expectAscendingTimes,
  newUser,
  type Open,
  openWithClock,
  orderFields,
  parsed,
} from "./open.ts";

const to = (status: OrderStatus) => (order: Order) => patchOrder(order, { status });

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

  test("orders.update applies a status change once when two calls make it concurrently", async () => {
    await using it = await openWithClock(open);
    const { id: userId } = await newUser(it.store);
    const record = await it.store.orders.create(orderFields(userId), null);
    const steps = (["paid", "paid", "canceled", "delivered"] as const).map((status) =>
      it.store.orders.update(record.id, to(status), null),
    );
    const results = await Promise.allSettled(steps);
    const [paid, again, ...others] = results.map(({ status }) => status === "fulfilled");
    expect(others).toEqual([true, false]);
    const order = await it.store.orders.get(record.id);
    // In any order it is canceled last, and each change is one version.
    expect(parsed(order)).toMatchObject({ status: "canceled", version: paid || again ? 3 : 2 });
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
