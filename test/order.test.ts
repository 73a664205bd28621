import { expect, test } from "bun:test";
import {
  type Order,
  type OrderInput,
  orderFields,
  orderStatuses,
  patchOrder,
} from "../src/order.ts";

type OrderItem = OrderInput["items"][number];

const item: OrderItem = { sku: "A-1", quantity: 1, unit_price: 100 };
const input: OrderInput = { user_id: 7, currency: "EUR", items: [item] };
const order: Order = {
  id: 1,
  ...input,
  total: 100,
  status: "pending",
  metadata: { a: "1" },
  version: 1,
  created_at: "2026-11-20T18:57:03.120Z",
  updated_at: "2026-11-20T18:57:03.120Z",
};

test("orderFields does not change the items and metadata", () => {
  const items = [{ ...item, name: "Ä" }, item];
  expect(orderFields({ ...input, items, metadata: { b: "2" } })).toEqual({
    user_id: 7,
    currency: "EUR",
    items,
    total: 200,
    metadata: { b: "2" },
  });
  expect(orderFields(input).metadata).toEqual({});
});

test("patchOrder changes only the metadata when the patch has no status", () => {
  for (const status of orderStatuses) {
    const patched = patchOrder({ ...order, status }, { metadata: { a: null, b: "2" } });
    expect(patched).toEqual({ status, metadata: { b: "2" } });
  }
  expect(patchOrder(order, { metadata: null })).toEqual({ status: "pending", metadata: {} });
});
