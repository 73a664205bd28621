import { afterAll, describe, expect, test } from "bun:test";
import { newOrder, newUser, order_keys, time_format } from "./make.ts";
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

function expectText(response: TestResponse, status: number, text: string): void {
  expect(response.status).toBe(status);
  expect(response.text).toBe(text);
  expect(response.headers.get("content-type")).toBe("text/plain; charset=utf-8");
  expect(response.headers.get("cache-control")).toBe("no-store");
  expect(response.headers.get("etag")).toBeNull();
}

/** @param problem the problem, or its beginning */
function expectInvalid(response: TestResponse, field: string, problem = "must be "): void {
  expect(response.status).toBe(400);
  expect(response.json.data).toBeNull();
  expect(response.json.error).toStartWith(`Validation failed: ${field} ${problem}`);
  expect(response.json.meta.problems[0].field).toBe(field);
}

async function countOrders(): Promise<number> {
  return (await server.call("GET", "/orders?limit=1")).json.meta.total;
}

describe("POST /orders", () => {
  test("`POST /orders` returns 201 with exactly the documented fields when only required ones are given", async () => {
    const response = await post({});
    expect(response.status).toBe(201);
    expect(Object.keys(response.json).sort()).toEqual(["data", "error"]);
    expect(response.json.error).toBeNull();
    const order = response.json.data;
    expect(Object.keys(order).sort()).toEqual([...order_keys]);
    expect(order).toMatchObject({
      user_id: buyer.id,
      currency: "EUR",
      total: 500,
      status: "pending",
      metadata: {},
      version: 1,
    });
    expect(order.items).toStrictEqual([line]);
    expect(order.created_at).toMatch(time_format);
    expect(order.updated_at).toBe(order.created_at);
    expect(response.headers.get("location")).toBe(`/api/v1/orders/${order.id}`);
    expect(response.headers.get("etag")).toBe('"1"');
    expect(response.headers.get("content-type")).toBe("application/json");
    const read = await server.call("GET", `/orders/${order.id}`);
    expect(read.text).toBe(response.text);
    expect(read.headers.get("etag")).toBe('"1"');
    expect(read.headers.get("cache-control")).toBe("private, no-cache");
  });

  test("`items` are stored as sent, in order, when some have a name and some have none", async () => {
    const items = [
      { sku: "b", name: "Zweite", quantity: 3, unit_price: 0 },
      { sku: "a", quantity: 1, unit_price: 7 },
      { sku: "a", quantity: 2, unit_price: 5, name: "𝄞 'quoted' \"twice\"" },
    ];
    const response = await post({ items, metadata: { channel: "web" } });
    expect(response.status).toBe(201);
    expect(response.json.data.items).toStrictEqual(items);
    expect(response.json.data.total).toBe(17);
    expect(response.json.data.metadata).toEqual({ channel: "web" });
    const read = await server.call("GET", `/orders/${response.json.data.id}`);
    expect(read.json.data.items).toStrictEqual(items);
  });

  test.each([
    ["one item of 1 × 0", [{ sku: "x", quantity: 1, unit_price: 0 }], 0],
    ["100 items", Array.from({ length: 100 }, () => line), 50_000],
    ["a sku of 64 characters", [{ ...line, sku: "s".repeat(64) }], 500],
    ["a sku of 64 characters outside the BMP", [{ ...line, sku: "😀".repeat(64) }], 500],
    ["a name of 1 character", [{ ...line, name: "n" }], 500],
    ["a name of 200 characters", [{ ...line, name: "n".repeat(200) }], 500],
    ["a quantity of 1,000,000", [{ ...line, quantity: 1_000_000 }], 250_000_000],
    ["a unit_price of 2^51", [{ ...line, quantity: 1, unit_price: 2 ** 51 }], 2 ** 51],
    ["a unit_price of 2^53−1", [{ ...line, quantity: 1, unit_price: MAX }], MAX],
    [
      "a total of 2^53−1 from two items",
      [
        { sku: "x", quantity: 2, unit_price: (MAX - 1) / 2 },
        { sku: "y", quantity: 1, unit_price: 1 },
      ],
      MAX,
    ],
  ])("`POST /orders` accepts %s", async (_what, items, total) => {
    const response = await post({ items });
    expect(response.status).toBe(201);
    expect(response.json.data.total).toBe(total);
    const read = await server.call("GET", `/orders/${response.json.data.id}`);
    expect(read.json.data).toEqual(response.json.data);
    expect(read.json.data.items).toStrictEqual(items);
  });

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
  ])("`POST /orders` rejects %s and stores nothing", async (_what, fields, field, problem) => {
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
  ])("`total` is rejected when %s exceed 2^53−1", async (_what, items) => {
    const before = await countOrders();
    const response = await post({ items });
    expect(response.status).toBe(400);
    expect(response.json.error).toStartWith("Validation failed: ");
    expect(await countOrders()).toBe(before);
  });

  test.each(["EUR", "USD", "JPY", "KWD", "CHF"])("`currency` %s is accepted", async (currency) => {
    const response = await post({ currency });
    expect(response.status).toBe(201);
    expect(response.json.data.currency).toBe(currency);
  });

  test.each(["eur", "Eur", "EURO", "EU", "ZZZ", "", " EUR", "EUR\n", "€", 978, null, {}])(
    "`currency` %j is rejected",
    async (currency) => {
      const before = await countOrders();
      expectInvalid(await post({ currency }), "currency");
      expect(await countOrders()).toBe(before);
    },
  );

  test("`user_id` is rejected when the user was deleted", async () => {
    const gone = await newUser(server);
    expect((await server.call("DELETE", `/users/${gone.id}`)).status).toBe(200);
    const response = await post({ user_id: gone.id });
    expectInvalid(response, "user_id", "must be an existing user");
  });

  test("`quantity` 2.0 and `unit_price` 1e2 are integers when written so in JSON", async () => {
    const items = '[{"sku":"x","quantity":2.0,"unit_price":1e2}]';
    const raw = `{"user_id":${buyer.id}.0,"currency":"EUR","items":${items}}`;
    const response = await server.call("POST", "/orders", { raw });
    expect(response.status).toBe(201);
    expect(response.json.data).toMatchObject({ user_id: buyer.id, total: 200 });
    expect(response.text).toContain('"quantity":2,');
  });
});

describe("GET /orders/:id", () => {
  test.each<[string, (id: number) => string]>([
    ["a leading plus", (id) => `+${id}`],
    ["leading zeros", (id) => `000${id}`],
    ["percent-encoded digits", (id) => String(id).replace(/./g, (digit) => `%3${digit}`)],
  ])("`id` finds the order when written with %s", async (_what, write) => {
    const order = await newOrder(server, buyer.id);
    const response = await server.call("GET", `/orders/${write(order.id)}`);
    expect(response.status).toBe(200);
    expect(response.json.data.id).toBe(order.id);
  });

  const bad = "abc 1.5 1.0 0x1 1e0 %201 1%20 1%0A %00 %zz 1_0 1,0 1n １ + - +-1 NaN null".split(
    " ",
  );
  const outside = ["9223372036854775808", "-9223372036854775809", "9".repeat(400)];
  test.each([...bad, ...outside])("`id` returns 400 in plain text when it is %s", async (id) => {
    expectText(await server.call("GET", `/orders/${id}`), 400, "invalid order id");
    const patched = await server.call("PATCH", `/orders/${id}`, { body: { status: "paid" } });
    expectText(patched, 400, "invalid order id");
    const head = await server.call("HEAD", `/orders/${id}`);
    expect([head.status, head.text]).toEqual([400, ""]);
  });

  const known = ["0", "-0", "-1", "9007199254740991", "9007199254740993"];
  test.each([...known, "9223372036854775807", "-9223372036854775808", "00000000000000000000000"])(
    "`id` returns 404 in plain text when it is %s",
    async (id) => {
      expectText(await server.call("GET", `/orders/${id}`), 404, "order not found");
      const patched = await server.call("PATCH", `/orders/${id}`, { body: { status: "paid" } });
      expectText(patched, 404, "order not found");
    },
  );
});

describe("PATCH /orders/:id", () => {
  test("`metadata` is merged, and nothing else changes, when it is patched", async () => {
    const order = await newOrder(server, buyer.id, { metadata: { a: "1", b: "2" } });
    const response = await server.call("PATCH", `/orders/${order.id}`, {
      body: { metadata: { a: null, c: "3" } },
      headers: { "content-type": "application/merge-patch+json" },
    });
    expect(response.status).toBe(200);
    expect(response.headers.get("etag")).toBe('"2"');
    const { updated_at, ...rest } = response.json.data;
    const { updated_at: created_at, ...old } = order;
    expect(rest).toEqual({ ...old, metadata: { b: "2", c: "3" }, version: 2 });
    expect(updated_at >= created_at).toBe(true);
    const cleared = await server.call("PATCH", `/orders/${order.id}`, { body: { metadata: null } });
    expect(cleared.json.data).toMatchObject({ metadata: {}, version: 3 });
    expect((await server.call("GET", `/orders/${order.id}`)).text).toBe(cleared.text);
  });

  test("`metadata` and `status` change in one version when they are patched together", async () => {
    const order = await newOrder(server, buyer.id);
    const body = { status: "paid", metadata: { paid_by: "card" } };
    const response = await server.call("PATCH", `/orders/${order.id}`, { body });
    expect(response.status).toBe(200);
    expect(response.json.data).toMatchObject({ ...body, version: 2 });
  });

  test("`PATCH` changes nothing, not even the version, when the body is {}", async () => {
    const order = await newOrder(server, buyer.id);
    const response = await server.call("PATCH", `/orders/${order.id}`, { body: {} });
    expect(response.status).toBe(200);
    expect(response.json.data).toEqual(order);
    expect(response.headers.get("etag")).toBe('"1"');
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
    "`PATCH` rejects %j and changes nothing",
    async (fields, field, problem) => {
      const order = await newOrder(server, buyer.id);
      const body = { metadata: { kept: "out" }, ...fields };
      const response = await server.call("PATCH", `/orders/${order.id}`, { body });
      expectInvalid(response, field, problem);
      expect((await server.call("GET", `/orders/${order.id}`)).json.data).toEqual(order);
    },
  );

  const STEPS: Record<string, string[]> = {
    pending: ["paid", "canceled"],
    paid: ["shipped", "canceled"],
    shipped: ["delivered"],
    delivered: [],
    canceled: [],
  };
  const WAY: Record<string, string[]> = {
    pending: [],
    paid: ["paid"],
    shipped: ["paid", "shipped"],
    delivered: ["paid", "shipped", "delivered"],
    canceled: ["canceled"],
  };
  const matrix = Object.keys(STEPS).flatMap((from) => Object.keys(STEPS).map((to) => [from, to]));

  /** Creates an order and changes its status step by step. @returns the response to a GET */
  async function orderAt(status: string): Promise<TestResponse> {
    const { id } = await newOrder(server, buyer.id);
    for (const step of WAY[status] ?? []) {
      const response = await server.call("PATCH", `/orders/${id}`, { body: { status: step } });
      expect(response.status).toBe(200);
    }
    return server.call("GET", `/orders/${id}`);
  }

  test.each(matrix)("`status` changes only as allowed when %s → %s", async (from, to) => {
    const before = await orderAt(from as string);
    const { id, version } = before.json.data;
    const allowed = STEPS[from as string] as string[];
    const response = await server.call("PATCH", `/orders/${id}`, { body: { status: to } });
    const after = await server.call("GET", `/orders/${id}`);
    if (allowed.includes(to as string)) {
      expect(response.status).toBe(200);
      expect(response.json.data).toMatchObject({ status: to, version: version + 1 });
      expect(response.headers.get("etag")).toBe(`"${version + 1}"`);
      expect(after.text).toBe(response.text);
      return;
    }
    expect(response.status).toBe(409);
    const next = allowed.length > 0 ? allowed.join(", ") : "none";
    expect(response.json).toEqual({
      data: null,
      error: `cannot change status from ${from} to ${to}; allowed: ${next}`,
      meta: { code: "invalid_status_change" },
    });
    expect(after.text).toBe(before.text);
  });

  test.each(matrix.filter(([from, to]) => !STEPS[from as string]?.includes(to as string)))(
    "`metadata` does not change when the status change %s → %s is rejected",
    async (from, status) => {
      const before = await orderAt(from as string);
      const path = `/orders/${before.json.data.id}`;
      const body = { metadata: { sneaked: "in" }, status };
      expect((await server.call("PATCH", path, { body })).status).toBe(409);
      expect((await server.call("GET", path)).text).toBe(before.text);
    },
  );

  test("`status` does not change when `metadata` is rejected", async () => {
    const before = await orderAt("pending");
    const path = `/orders/${before.json.data.id}`;
    const body = { status: "paid", metadata: { ["k".repeat(41)]: "v" } };
    expect((await server.call("PATCH", path, { body })).status).toBe(400);
    expect((await server.call("GET", path)).text).toBe(before.text);
  });
});
