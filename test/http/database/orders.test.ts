import { expect, test } from "bun:test";
import { expectError, expectText, newOrder, newUser, timeFormat } from "../make.ts";
import { startSharedServer, type TestResponse } from "../server.ts";

const server = await startSharedServer();
const buyer = await newUser(server);

const line = { sku: "A-1", quantity: 2, unit_price: 250 };
const exact = (...[first, price, second, other]: readonly number[]) => [
  { sku: "a", quantity: first, unit_price: price },
  { sku: "b", quantity: second, unit_price: other },
];
function post(fields: Record<string, unknown>): Promise<TestResponse> {
  const body = { user_id: buyer.id, currency: "EUR", items: [line], ...fields };
  return server.call("POST", "/orders", { body });
}

test("POST /orders returns 201 with exactly the documented fields when only required ones are given", async () => {
  const response = await post({});
  expect(response.status).toBe(201);
  const order = response.json.data;
  expect(order).toStrictEqual({
    ...{ id: order.id, user_id: buyer.id, currency: "EUR", reference: null, items: [line] },
    ...{ total: 500, refunded: 0, status: "pending", metadata: {}, version: 1 },
    ...{ created_at: expect.stringMatching(timeFormat), updated_at: order.created_at },
  });
  expect(response.headers.get("location")).toBe(`/api/v1/orders/${order.id}`);
  expect(response.headers.get("etag")).toBe('"1"');
  const read = await server.call("GET", `/orders/${order.id}`);
  expect(read.text).toBe(response.text);
  expect(read.headers.get("etag")).toBe('"1"');
  expect(read.headers.get("cache-control")).toBe("private, no-cache");
});

const largest = Number.MAX_SAFE_INTEGER;
test.each<[what: string, total: number, items: object[]]>([
  [
    "items with and without a name, in their order",
    512,
    [
      { ...line, name: "Zweite" },
      { sku: "s", quantity: 1, unit_price: 7 },
      { ...line, quantity: 1, unit_price: 5, name: "𝄞 'quoted' \"twice\"" },
      { ...line, unit_price: 0, name: "n" },
    ],
  ],
  ["500 items of 125 bytes", 250_000, Array(500).fill({ ...line, name: "n".repeat(74) })],
  ["a discount of everything", 0, [line, { sku: "gift-card", quantity: 5, unit_price: -100 }]],
  ["much that adds up to 2^53 − 1", largest, exact(999_999, 9_007_208_261, 1, 949_252)],
  ["much that cancels out", largest, exact(1_000_000, largest, 999_999, -largest)],
  ["long texts", 500, [{ ...line, sku: "😀".repeat(64), name: "n".repeat(200) }]],
])("POST /orders accepts %s", async (_what, total, items) => {
  const response = await post({ items, metadata: { channel: "web" } });
  expect(response.status).toBe(201);
  expect(response.json.data).toMatchObject({ total, metadata: { channel: "web" } });
  const read = await server.call("GET", `/orders/${response.json.data.id}`);
  expect(read.json.data).toEqual(response.json.data);
  expect(read.json.data.items).toStrictEqual(items);
});

test("GET /orders/:id finds the order with a plus, leading zeros or percent-encoded digits", async () => {
  const { id } = await newOrder(server, buyer.id);
  for (const written of [`+${id}`, `000${id}`, `${id}`.replace(/./g, (digit) => `%3${digit}`)]) {
    const { status, json } = await server.call("GET", `/orders/${written}`);
    expect([status, json.data.id]).toEqual([200, id]);
  }
});

test.each(["-0", "-1", "9007199254740993", "9223372036854775807", "-9223372036854775808"])(
  "the id of an order returns 404 in plain text when it is %s",
  async (id) => {
    expectText(await server.call("GET", `/orders/${id}`), 404, "order not found");
    const patched = await server.call("PATCH", `/orders/${id}`, { body: { status: "paid" } });
    expectText(patched, 404, "order not found");
  },
);

// All steps are in order.test.ts.
test("PATCH /orders/:id returns 409 with what is allowed, and changes nothing, when a status is not a valid next one or a refund is out of range", async () => {
  const { id, total } = await newOrder(server, buyer.id);
  const patch = (body: object) => server.call("PATCH", `/orders/${id}`, { body });
  const changed = await patch({ status: "canceled", refunded: 41 });
  expect(changed.json.data).toMatchObject({ status: "canceled", refunded: 41, version: 2 });
  for (const refunded of [0, 40, total + 1, Number.MAX_SAFE_INTEGER]) {
    const response = await patch({ refunded, metadata: { kept: "out" } });
    const range = "from 41, which is refunded already, to 100, the total";
    expectError(response, 409, `refunded must be ${range}`);
    const allowed = { min: 41, max: total };
    expect(response.json.meta).toEqual({ code: "invalid_refund", allowed });
  }
  const paid = await patch({ status: "paid", metadata: { kept: "out" } });
  expectError(paid, 409, "cannot change status from canceled to paid; allowed: none");
  expect(paid.json.meta).toEqual({ code: "invalid_status_change", allowed: [] });
  expect((await server.call("GET", `/orders/${id}`)).text).toBe(changed.text);
  expect((await patch({ refunded: total })).json.data).toMatchObject({ refunded: total });
});
