import { expect, test } from "bun:test";
import type { Order } from "../../src/domain/order.ts";
import { expectAscendingTimes, newUser, type Open, openWithClock, orderFields } from "./open.ts";

export function ordersContract(open: Open): void {
  test("orders.update does not move updated_at back when the clock goes back", async () => {
    await using it = await openWithClock(open);
    const user = await newUser(it.store);
    const record = await it.store.orders.create(orderFields(user.id), null);
    const edit = (order: Order) => ({ ...order, metadata: { v: `${order.version}` } });
    await expectAscendingTimes(it, it.store.orders, record.id, edit);
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
