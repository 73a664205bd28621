import { expect, test } from "bun:test";
import { type Order, orderStatuses, patchOrder } from "../src/order.ts";
import { MAX_PAGE_BYTES } from "../src/page.ts";

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

test("a page has room for 50 orders of the largest size, and what the feed has of each", () => {
  const number = Number.MAX_SAFE_INTEGER;
  // JSON writes a control character as six bytes.
  const text = (length: number) => "\u0001".repeat(length);
  const item = { sku: text(64), name: text(200), quantity: number, unit_price: number };
  const keys = Array.from({ length: 50 }, (_, at) => text(40) + at);
  const largest: Order = {
    ...order,
    id: number,
    user_id: number,
    items: Array(100).fill(item),
    total: number,
    status: "delivered",
    metadata: Object.fromEntries(keys.map((key) => [key, text(500)])),
    version: number,
  };
  expect(50 * (JSON.stringify(largest).length + 1_000)).toBeLessThan(MAX_PAGE_BYTES);
});
