import { expect, test } from "bun:test";
import {
  expectError,
  expectText,
  type Fields,
  metadataOf,
  newEmail,
  newOrder,
  newUser,
  stored,
  timeFormat,
} from "../make.ts";
import { startSharedServer, type TestResponse } from "../server.ts";

const server = await startSharedServer();

const emoji = "😀"; // One code point, two UTF-16 units, four bytes.
/** @returns a valid email of `length` code points, with labels of at most 60 */
const longEmail = (length: number) =>
  `${crypto.randomUUID().padEnd(length - 196, "z")}@${`${"d".repeat(47)}.`.repeat(4)}com`;

test("GET /users?email reads + as a plus sign, and returns 400 when it is no email", async () => {
  const plus = await newUser(server, { email: `a+b-${crypto.randomUUID()}@example.com` });
  expect((await server.call("GET", `/users?email=${plus.email}`)).json.data).toEqual([plus]);
  for (const bad of ["", "nobody-at-all", "a%00b@example.com", "a%20b@example.com"]) {
    const response = await server.call("GET", `/users?email=${bad}`);
    expectError(response, 400, /^Validation failed: email must /, "nobody-at-all");
  }
});

const [moved, other] = [newEmail(), newEmail()];
const full = { name: "Anne", metadata: { a: "1", b: "2" } };
const merged = { a: null, c: "3", gone: null };
/** PUT has the email of the user if the row has none. */
test.each<[when: string, method: string, body: Fields, changed: Fields]>([
  ["PATCH has an email", "PATCH", { email: moved }, { email: moved }],
  ["PATCH has null as name", "PATCH", { name: null }, { name: null }],
  ["PATCH has null as reference", "PATCH", { reference: null }, { reference: null }],
  ["PATCH has null as metadata", "PATCH", { metadata: null }, { metadata: {} }],
  ["PATCH has keys", "PATCH", { metadata: merged }, { metadata: { b: "2", c: "3" } }],
  ["PATCH has what is stored", "PATCH", { name: "Anne", metadata: { a: "1", gone: null } }, {}],
  ["PUT omits fields", "PUT", { email: other }, { email: other, name: null, metadata: {} }],
  ["PUT has null as reference", "PUT", { ...full, reference: null }, { reference: null }],
  ["PUT has what is stored", "PUT", { name: "Anne", metadata: { b: "2", a: "1" } }, {}],
])(
  "a user has the given fields, resets only what is omitted by PUT, and has a new version if it is changed, when %s",
  async (_when, method, fields, changed) => {
    const user = await newUser(server, { ...full, reference: crypto.randomUUID() });
    const body = method === "PUT" ? { email: user.email, ...fields } : fields;
    const response = await server.call(method, `/users/${user.id}`, { body });
    const version = Object.keys(changed).length === 0 ? 1 : 2;
    expect([response.status, response.headers.get("etag")]).toEqual([200, `"${version}"`]);
    const { updated_at } = response.json.data;
    expect(updated_at).toMatch(timeFormat);
    expect(updated_at >= user.updated_at).toBe(true);
    const data = { ...user, ...changed, version, ...(version === 2 && { updated_at }) };
    expect(response.json).toEqual({ data, error: null });
    expect((await server.call("GET", `/users/${user.id}`)).json).toEqual(response.json);
  },
);

const badId = "Validation failed: id must be a positive integer";
test("a user is not found when the id is not canonical, or larger than any", async () => {
  await newUser(server);
  const before = await stored(server, "/users?limit=1000");
  for (const [ids, status, error] of [
    ["0 -1 +1 01 1.0 0x1 1e0 %201 1%20 1%00 abc 1,2 %D9%A1", 400, badId],
    [`9007199254740993 9223372036854775808 ${"1".repeat(30)}`, 404, "user not found"],
  ] as const)
    for (const id of ids.split(" "))
      for (const method of ["GET", "PATCH", "PUT", "DELETE"]) {
        const body = method === "PATCH" || method === "PUT" ? { email: newEmail() } : undefined;
        expectError(await server.call(method, `/users/${id}`, { body }), status, error);
      }
  expect(await stored(server, "/users?limit=1000")).toEqual(before);
});

const accepted: Fields[] = [
  { email: longEmail(254), name: emoji.repeat(200), metadata: metadataOf(50) },
  // Kept as typed: no trimming, no normalising.
  {
    ...{ email: newEmail(), name: ' \ufeff\u0001\u2028e\u0301\ufffd"\\/\n' },
    metadata: {
      [emoji.repeat(40)]: emoji.repeat(500),
      ["__proto__"]: "p",
      toString: "",
      "a.b[0]": "d",
    },
  },
];
test.each(accepted)(
  "users keep every character when fields are at a limit (row %#)",
  async (fields) => {
    const { id } = await newUser(server, fields);
    for (const method of ["PATCH", "PUT"]) {
      await server.call("PUT", `/users/${id}`, { body: { email: newEmail() } });
      const { status } = await server.call(method, `/users/${id}`, { body: fields });
      expect(status).toBe(200);
      const got = (await server.call("GET", `/users/${id}`)).json.data;
      // As entries, because `toEqual` does not compare a key named `__proto__`.
      for (const [field, value] of Object.entries(fields))
        expect(Object.entries(got[field])).toEqual(Object.entries(value as object));
    }
  },
);

const buyer = await newUser(server);

const line = { sku: "A-1", quantity: 2, unit_price: 250 };
const exact = (...[first, price, second, other]: readonly number[]) => [
  { sku: "a", quantity: first, unit_price: price },
  { sku: "b", quantity: second, unit_price: other },
];
function post(fields: Record<string, unknown>): Promise<TestResponse> {
  return server.call("POST", "/orders", { body: { ...required, ...fields } });
}

const items = [line];
const required = { user_id: buyer.id, currency: "EUR", items };
const typed = `As-Typed+${crypto.randomUUID()}@Example.COM`;
test.each<[path: string, given: Fields, defaults: Fields]>([
  ["/users", { email: typed }, { name: null }],
  ["/orders", required, { total: 500, refunded: 0, status: "pending" }],
])(
  "POST %s returns 201 with exactly the documented fields when only required ones are given",
  async (path, given, defaults) => {
    const response = await server.call("POST", path, { body: given });
    expect(response.status).toBe(201);
    const { data } = response.json;
    expect(data).toStrictEqual({
      ...{ id: data.id, ...given, ...defaults, reference: null, metadata: {}, version: 1 },
      ...{ created_at: expect.stringMatching(timeFormat), updated_at: data.created_at },
    });
    expect(response.headers.get("location")).toBe(`/api/v1${path}/${data.id}`);
    expect(response.headers.get("etag")).toBe('"1"');
    const read = await server.call("GET", `${path}/${data.id}`);
    expect(read.text).toBe(response.text);
    expect(read.headers.get("etag")).toBe('"1"');
    expect(read.headers.get("cache-control")).toBe("private, no-cache");
  },
);

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
