import { expect, test } from "bun:test";
import { newUser, type Open, openWithClock, orderFields } from "./open.ts";

export function recordsContract(open: Open): void {
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
