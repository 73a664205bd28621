import { afterAll, expect, test } from "bun:test";
import { expectError, expectText, newOrder, newUser } from "./make.ts";
import { startServer, type TestResponse } from "./server.ts";

const server = await startServer();
afterAll(() => server[Symbol.asyncDispose]());
const buyer = await newUser(server);

const MAX = Number.MAX_SAFE_INTEGER;
const line = { sku: "A-1", quantity: 2, unit_price: 250 };
function post(fields: Record<string, unknown>): Promise<TestResponse> {
  const body = { user_id: buyer.id, currency: "EUR", items: [line], ...fields };
  return server.call("POST", "/orders", { body });
}

/** @param problem the problem, or its beginning */
function expectInvalid(response: TestResponse, field: string, problem = "must be "): void {
  const beginning = RegExp.escape(`Validation failed: ${field} ${problem}`);
  expectError(response, 400, new RegExp(`^${beginning}`));
}

async function countOrders(): Promise<number> {
  return (await server.call("GET", "/orders?limit=1")).json.meta.total;
}

const item = (fields: Record<string, unknown>) => ({ items: [{ ...line, ...fields }] });
const without = (field: string) => ({
  items: [Object.fromEntries(Object.entries(line).filter(([name]) => name !== field))],
});
test.each<[string, Record<string, unknown>, string, string]>([
  ["no items", { items: undefined }, "items", "is required"],
  ["items null", { items: null }, "items", "must be "],
  ["items an object", { items: { 0: line } }, "items", "must be "],
  ["0 items", { items: [] }, "items", "must be "],
  ["101 items", { items: Array.from({ length: 101 }, () => line) }, "items", "must be "],
  ["an item that is null", { items: [line, null] }, "items[1]", "must be "],
  ["an item that is an array", { items: [[line]] }, "items[0]", "must be "],
  ["an unknown item field", item({ colour: "red" }), "items[0].colour", "is not allowed"],
  ["no sku", without("sku"), "items[0].sku", "is required"],
  ["an empty sku", item({ sku: "" }), "items[0].sku", "must be "],
  ["a sku of 65", item({ sku: "s".repeat(65) }), "items[0].sku", "must be "],
  ["a sku of 65 outside the BMP", item({ sku: "😀".repeat(65) }), "items[0].sku", "must be "],
  ["a sku with NUL", item({ sku: "a\0b" }), "items[0].sku", "must be "],
  ["a sku that is a number", item({ sku: 5 }), "items[0].sku", "must be "],
  ["an empty name", item({ name: "" }), "items[0].name", "must be "],
  ["a name of 201", item({ name: "n".repeat(201) }), "items[0].name", "must be "],
  ["no quantity", without("quantity"), "items[0].quantity", "is required"],
  ["quantity 0", item({ quantity: 0 }), "items[0].quantity", "must be "],
  ["quantity −1", item({ quantity: -1 }), "items[0].quantity", "must be "],
  ["quantity 1,000,001", item({ quantity: 1_000_001 }), "items[0].quantity", "must be "],
  ["quantity 1.5", item({ quantity: 1.5 }), "items[0].quantity", "must be "],
  ["quantity as text", item({ quantity: "2" }), "items[0].quantity", "must be "],
  ["no unit_price", without("unit_price"), "items[0].unit_price", "is required"],
  ["unit_price −1", item({ unit_price: -1 }), "items[0].unit_price", "must be "],
  ["unit_price 0.5", item({ unit_price: 0.5 }), "items[0].unit_price", "must be "],
  ["unit_price 2^53", item({ unit_price: MAX + 1 }), "items[0].unit_price", "must be "],
  ["unit_price null", item({ unit_price: null }), "items[0].unit_price", "must be "],
  ["no currency", { currency: undefined }, "currency", "is required"],
  ["no user_id", { user_id: undefined }, "user_id", "is required"],
  ["user_id null", { user_id: null }, "user_id", "must be "],
  ["user_id as text", { user_id: String(buyer.id) }, "user_id", "must be "],
  ["user_id 1.5", { user_id: 1.5 }, "user_id", "must be "],
  ["user_id 0", { user_id: 0 }, "user_id", "must be "],
  ["user_id unknown", { user_id: MAX }, "user_id", "must be an existing user"],
  ["metadata null in a value", { metadata: { a: null } }, "metadata.a", "must be "],
  ["an unknown field", { colour: "red" }, "colour", "is not allowed"],
  ["id", { id: 7 }, "id", "is read-only"],
  ["total", { total: 500 }, "total", "is read-only"],
  ["version", { version: 1 }, "version", "is read-only"],
  ["created_at", { created_at: "2026-01-01T00:00:00.000Z" }, "created_at", "is read-only"],
  ["updated_at", { updated_at: "2026-01-01T00:00:00.000Z" }, "updated_at", "is read-only"],
  ["status", { status: "paid" }, "status", "is "],
])("POST /orders rejects %s and stores nothing", async (_what, fields, field, problem) => {
  const before = await countOrders();
  const response = await post(fields);
  expectInvalid(response, field, problem);
  expect(await countOrders()).toBe(before);
});

test.each([
  ["2 × 2^52", [{ ...line, unit_price: 2 ** 52 }]],
  ["a million of the largest price", [{ sku: "x", quantity: 1_000_000, unit_price: MAX }]],
  [
    "2^53−1 and 1",
    [
      { sku: "x", quantity: 1, unit_price: MAX },
      { sku: "y", quantity: 1, unit_price: 1 },
    ],
  ],
  ["100 items of 2^53−1", Array.from({ length: 100 }, () => ({ ...line, unit_price: MAX }))],
])("total is rejected when %s exceed 2^53−1", async (_what, items) => {
  const before = await countOrders();
  const response = await post({ items });
  expect(response.status).toBe(400);
  expect(response.json.error).toStartWith("Validation failed: ");
  expect(await countOrders()).toBe(before);
});

test.each(["eur", "Eur", "EURO", "EU", "ZZZ", "", " EUR", "EUR\n", "€", 978, null, {}])(
  "currency %j is rejected",
  async (currency) => {
    const before = await countOrders();
    expectInvalid(await post({ currency }), "currency");
    expect(await countOrders()).toBe(before);
  },
);

const bad = "abc 1.5 1.0 0x1 1e0 %201 1%20 1%0A %00 %zz 1_0 1,0 1n １ + - +-1 NaN null".split(" ");
const outside = ["9223372036854775808", "-9223372036854775809", "9".repeat(400)];
test.each([...bad, ...outside])("id returns 400 in plain text when it is %s", async (id) => {
  expectText(await server.call("GET", `/orders/${id}`), 400, "invalid order id");
  const patched = await server.call("PATCH", `/orders/${id}`, { body: { status: "paid" } });
  expectText(patched, 400, "invalid order id");
  const head = await server.call("HEAD", `/orders/${id}`);
  expect([head.status, head.text]).toEqual([400, ""]);
});

const readonly = "id user_id currency items total version created_at updated_at".split(" ");
test.each<[Record<string, unknown>, string, string]>([
  ...readonly.map((field) => [{ [field]: 1 }, field, "is read-only"] as [object, string, string]),
  [{ items: [line] }, "items", "is read-only"],
  [{ colour: "red" }, "colour", "is not allowed"],
  [{ status: null }, "status", "must be "],
  [{ status: "PAID" }, "status", "must be "],
  [{ status: "cancelled" }, "status", "must be "],
  [{ status: 1 }, "status", "must be "],
  [{ metadata: "x" }, "metadata", "must be "],
  [{ metadata: { a: 1 } }, "metadata.a", "must be "],
] as [Record<string, unknown>, string, string][])(
  "PATCH rejects %j and changes nothing",
  async (fields, field, problem) => {
    const order = await newOrder(server, buyer.id);
    const body = { metadata: { kept: "out" }, ...fields };
    const response = await server.call("PATCH", `/orders/${order.id}`, { body });
    expectInvalid(response, field, problem);
    expect((await server.call("GET", `/orders/${order.id}`)).json.data).toEqual(order);
  },
);
