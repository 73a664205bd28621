import { expect, test } from "bun:test";
import {
  Order,
  OrderInput,
  OrderPatch,
  type OrderStatus,
  order_statuses,
  orderFields,
  patchOrder,
} from "../src/order.ts";
import { createValidator } from "../src/schema.ts";
import { expectThrown } from "./expect-error.ts";

const MAX = Number.MAX_SAFE_INTEGER;
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

/** [quantity, unit_price] of each item, and the total. */
const totals: [string, [number, number][], number][] = [
  ["the price is nothing", [[1_000_000, 0]], 0],
  ["there is one item", [[3, 250]], 750],
  [
    "there are several",
    [
      [3, 250],
      [1, 1],
      [1_000_000, 7],
    ],
    7_000_751,
  ],
  ["it is 2^51", [[1, 2 ** 51]], 2 ** 51],
  ["it is 2^53 - 1 in one", [[1, MAX]], MAX],
  [
    "it is 2^53 - 1 from two items",
    [
      [1, MAX - 1],
      [1, 1],
    ],
    MAX,
  ],
  [
    "it is 2^53 - 1 from one product",
    [
      [1_000_000, 9_007_199_254],
      [1, 740_991],
    ],
    MAX,
  ],
  [
    "it is odd and large",
    [
      [3, 3_002_399_751_580_329],
      [1, 3],
    ],
    9_007_199_254_740_990,
  ],
];

function itemsOf(rows: readonly [number, number][]): OrderItem[] {
  return rows.map(([quantity, unit_price]) => ({ sku: "A-1", quantity, unit_price }));
}

for (const [when, rows, total] of totals) {
  test(`orderFields adds up exactly when ${when}`, () => {
    expect(orderFields({ ...input, items: itemsOf(rows) }).total).toBe(total);
  });
}

const too_much: [string, [number, number][]][] = [
  [
    "it is 2^53",
    [
      [1, MAX],
      [1, 1],
    ],
  ],
  ["it is 2^53 by a product", [[2, 2 ** 52]]],
  [
    "a double would lose the excess",
    [
      [1, MAX],
      [1, 1],
      [1, 1],
    ],
  ],
  ["it is 2^53 + 1", [[3, 3_002_399_751_580_331]]],
  ["it is as large as can be", Array.from({ length: 100 }, () => [1_000_000, MAX])],
];

for (const [when, rows] of too_much) {
  test(`orderFields rejects the total when ${when}`, () => {
    const message = `Validation failed: items must add up to at most ${MAX}`;
    expectThrown(() => orderFields({ ...input, items: itemsOf(rows) }), "invalid", message);
  });
}

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

const next: Record<OrderStatus, readonly OrderStatus[]> = {
  pending: ["paid", "canceled"],
  paid: ["shipped", "canceled"],
  shipped: ["delivered"],
  delivered: [],
  canceled: [],
};

for (const from of order_statuses) {
  for (const to of order_statuses) {
    const allowed = next[from].includes(to);
    test(`patchOrder ${allowed ? "accepts" : "rejects"} the change when ${from} → ${to}`, () => {
      const change = () => patchOrder({ ...order, status: from }, { status: to });
      if (allowed) {
        expect(change()).toEqual({ status: to, metadata: { a: "1" } });
      } else {
        const allowed = next[from].join(", ") || "none";
        const message = `cannot change status from ${from} to ${to}; allowed: ${allowed}`;
        expectThrown(change, "invalid_status_change", message);
      }
    });
  }
}

test("patchOrder changes only the metadata when the patch has no status", () => {
  for (const status of order_statuses) {
    const patched = patchOrder({ ...order, status }, { metadata: { a: null, b: "2" } });
    expect(patched).toEqual({ status, metadata: { b: "2" } });
  }
  expect(patchOrder(order, { metadata: null })).toEqual({ status: "pending", metadata: {} });
});

test("patchOrder returns null when the patch is empty", () => {
  expect(patchOrder(order, {})).toBeNull();
  expect(patchOrder({ ...order, status: "canceled" }, {})).toBeNull();
});

const checkInput = createValidator(OrderInput, Order);
const checkPatch = createValidator(OrderPatch, Order);

test("OrderInput accepts values at their bounds", () => {
  const bounds: OrderItem[] = [
    { sku: "😀".repeat(64), name: "😀".repeat(200), quantity: 1_000_000, unit_price: 0 },
    { sku: "a", name: "a", quantity: 1, unit_price: MAX },
  ];
  for (const items of [bounds, Array.from({ length: 100 }, () => item)]) {
    const value = { ...input, user_id: MAX, items };
    expect(checkInput(value)).toBe(value);
  }
});

const rejected: [unknown, string][] = [
  [{ currency: "EUR", items: [item] }, "user_id is required"],
  [{ ...input, user_id: 0 }, `user_id must be an integer from 1 to ${MAX}`],
  [{ ...input, user_id: 2 ** 53 }, `user_id must be an integer from 1 to ${MAX}`],
  [{ ...input, user_id: "7" }, `user_id must be an integer from 1 to ${MAX}`],
  [{ user_id: 7, items: [item] }, "currency is required"],
  [{ ...input, currency: "eur" }, "currency must be an ISO 4217 code in upper case"],
  [{ ...input, currency: "DEM" }, "currency must be an ISO 4217 code in upper case"],
  [{ user_id: 7, currency: "EUR" }, "items is required"],
  [{ ...input, items: [] }, "items must be an array of 1 to 100 items"],
  [{ ...input, items: Array(101).fill(item) }, "items must be an array of 1 to 100 items"],
  [{ ...input, items: [{ ...item, sku: "" }] }, "items[0].sku must be text of 1 to 64 characters"],
  [
    { ...input, items: [{ ...item, quantity: 0 }] },
    "items[0].quantity must be an integer from 1 to 1000000",
  ],
  [
    { ...input, items: [item, { ...item, quantity: 1_000_001 }] },
    "items[1].quantity must be an integer from 1 to 1000000",
  ],
  [
    { ...input, items: [{ ...item, unit_price: -1 }] },
    `items[0].unit_price must be an integer from 0 to ${MAX}`,
  ],
  [
    { ...input, items: [{ ...item, name: null }] },
    "items[0].name must be text of 1 to 200 characters",
  ],
  [{ ...input, items: [{ ...item, price: 1 }] }, "items[0].price is not allowed"],
  [{ ...input, total: 100 }, "total is read-only"],
  [{ ...input, status: "pending" }, "status is read-only"],
  [{ ...input, id: 1 }, "id is read-only"],
];

for (const [value, problem] of rejected) {
  test(`OrderInput rejects a body when ${problem}`, () => {
    expectThrown(() => checkInput(value), "invalid", `Validation failed: ${problem}`);
  });
}

test("OrderPatch reports a field as read-only when it cannot change", () => {
  const fixed = [
    "items",
    "currency",
    "user_id",
    "total",
    "id",
    "version",
    "created_at",
    "updated_at",
  ];
  for (const field of fixed) {
    const patch = { [field]: order[field as keyof Order] };
    expectThrown(() => checkPatch(patch), "invalid", `Validation failed: ${field} is read-only`);
  }
  for (const status of [null, "Paid", "open", 1, ""]) {
    expectThrown(
      () => checkPatch({ status }),
      "invalid",
      /^Validation failed: status must be one of pe/,
    );
  }
});
