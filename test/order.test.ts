import { expect, test } from "bun:test";
import { type Order, orderStatuses, patchOrder } from "../src/order.ts";

const order: Order = {
  id: 1,
  user_id: 7,
  currency: "EUR",
  items: [{ sku: "A-1", quantity: 1, unit_price: 100 }],
  total: 100,
  status: "pending",
  metadata: { a: "1" },
  version: 1,
  created_at: "2026-11-20T18:57:03.120Z",
  updated_at: "2026-11-20T18:57:03.120Z",
};

test("patchOrder changes only the metadata when the patch has no status", () => {
  for (const status of orderStatuses) {
    const patched = patchOrder({ ...order, status }, { metadata: { a: null, b: "2" } });
    expect(patched).toEqual({ status, metadata: { b: "2" } });
  }
  expect(patchOrder(order, { metadata: null })).toEqual({ status: "pending", metadata: {} });
});
