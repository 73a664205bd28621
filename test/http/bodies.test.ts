import { expect, test } from "bun:test";
import { expectError, metadataOf, newEmail, newOrder, newUser, send, stored } from "./make.ts";
import { chunked, rawRequest } from "./raw.ts";
import { startSharedServer, type TestResponse } from "./server.ts";

const limit = 65_536;
const server = await startSharedServer();
const token = server.writeToken;
const { id: userId } = await newUser(server);
const { id: orderId } = await newOrder(server, userId);

const items = [{ sku: "A-1", quantity: 1, unit_price: 100 }];
/** Every route with a body. `good` returns a valid body with a unique email. */
const routes = [
  { route: "POST /users", path: () => "/users", good: () => ({ email: newEmail() }) },
  { route: "PUT /users/:id", path: () => `/users/${userId}`, good: () => ({ email: newEmail() }) },
  { route: "PATCH /users/:id", path: () => `/users/${userId}`, good: () => ({ name: "Anne" }) },
  {
    route: "POST /orders",
    path: () => "/orders",
    good: () => ({ user_id: userId, currency: "EUR", items }),
  },
  { route: "PATCH /orders/:id", path: () => `/orders/${orderId}`, good: () => ({ metadata: {} }) },
].map((route) => ({
  ...route,
  method: route.route.split(" ")[0] ?? "",
  text: () => JSON.stringify(route.good()),
}));
const state = () =>
  stored(server, `/users/${userId}`, `/orders/${orderId}`, "/users?limit=1", "/orders?limit=1");
const bytes = (...parts: (string | number[])[]) =>
  Uint8Array.from(
    parts.flatMap((part) => (typeof part === "string" ? [...Buffer.from(part)] : part)),
  );

/** Spellings of the content type, with parameters that are ignored even if their value looks like a charset. */
const withText = (parameters: string) => `application/json; ${parameters}`;
const json = [
  ...["application/json", "APPLICATION/JSON", 'Application/Json;charset="UTF-8"; x=y'],
  "application/json ; charset=utf-8",
  ...["charset=utf8", "charset=unicode-1-1-utf-8", "charset=utf-8; version=1", "charset", ";"],
  ...['charset="utf\\-8"', 'x="\\"; charset=utf-16"', "xcharset=utf-16", "version=1"],
].map((type) => (/^application/i.test(type) ? type : withText(type)));
const merge = "application/merge-patch+json";
const merges = [merge, "Application/Merge-Patch+JSON; charset=utf-8"];
const otherTypes = [
  ...["text/plain", "text/json", "application/x-www-form-urlencoded", "application/jsonp", "*/*"],
  ...["application/jsonx; charset=utf-8", "json", "multipart/form-data; boundary=x"],
];
const otherCharsets = [
  ...["CHARSET=UTF-16", 'charset="utf-16"', "charset=iso-8859-1", "charset=", "charset=utf-8x"],
  ...["x=y;charset=us-ascii", "charset=utf-8; charset=utf-16", 'x="y;z\\""; charset=latin1'],
].map(withText);

function expectAccepted({ status, text }: TestResponse, what = ""): void {
  expect([200, 201], `${what}: ${text}`).toContain(status);
}

for (const { route, method, path, text } of routes)
  test(`${route} accepts JSON in any spelling of its type, up to the maximum size, and changes nothing with another body`, async () => {
    const patch = method === "PATCH";
    for (const type of [...json, ...(patch ? merges : [])])
      expectAccepted(await send(server, method, path(), text(), type), type);
    expectAccepted(await send(server, method, path(), text().padEnd(limit)));
    const before = await state();
    const accepted = patch ? `application/json, ${merge}` : null;
    const rejected = [...otherTypes, patch ? "application/json-patch+json" : merge];
    for (const type of [...rejected, ...otherCharsets]) {
      const response = await send(server, method, path(), text(), type);
      const message = otherCharsets.includes(type) ? /must be UTF-8$/ : /must be application\/json/;
      expectError(response, 415, message);
      expect(response.headers.get("accept-patch")).toBe(accepted);
    }
    for (const large of [text().padEnd(limit + 1), "{".repeat(limit + 1)]) // 413 before 400.
      expectError(await send(server, method, path(), large), 413, /./);
    const malformed = await send(server, method, path(), '{"a":hunter2}');
    expectError(malformed, 400, "Validation failed: body must be valid JSON", "hunter2");
    const unknown = await send(server, method, path(), `${text().slice(0, -1)},"zz":"hunter2"}`);
    expectError(unknown, 400, "Validation failed: zz is not allowed", "hunter2");
    expect(await state()).toEqual(before);
  });

const reads = ["/users", `/users/${userId}`, "/orders", `/orders/${orderId}`, "/changes"];
test.each([
  ["POST", "If-Match", ["/users", "/orders"], ["Idempotency-Key"]],
  ["POST", "If-None-Match", ["/users", "/orders"], ["Idempotency-Key"]],
  ["GET", "Idempotency-Key", [...reads, "/health", "/metrics"], ["If-Match", "If-None-Match"]],
])("a %s returns 400 when it has %s", async (method, name, paths, allowed) => {
  for (const path of paths) {
    const body = method === "POST" ? {} : undefined;
    const response = await server.call(method, path, { body, headers: { [name]: "*" } });
    expectError(response, 400, `Validation failed: ${name} is not allowed with ${method}`);
    expect(response.json.meta.problems[0].allowed).toEqual(allowed);
  }
});

const newText = () => JSON.stringify({ email: newEmail() });
/** Sends a POST of a user, with these header lines instead of those of `fetch`. */
const post = (body: string, ...headers: string[]) =>
  server.raw(`${rawRequest("POST", "/api/v1/users", { token, headers })}${body}`);

test("POST /users accepts a body without a type, and one whose Content-Length is given twice", async () => {
  const body = newText();
  const length = `Content-Length: ${body.length}`;
  expect(await post(body, length)).toStartWith("HTTP/1.1 201 ");
  const twice = [length, length, "Content-Type: application/json"];
  expect(await post(newText(), ...twice)).toStartWith("HTTP/1.1 201 ");
});

test("POST /users counts a body that arrives in chunks, of which it accepts 1,024, and rejects one that announces too much", async () => {
  const type = "Content-Type: application/json";
  const parts = [type, "Transfer-Encoding: chunked"];
  const halves = [newText().padEnd(limit / 2), " ".repeat(limit / 2)];
  for (const chunks of [halves, [...newText().padEnd(1024)]])
    expect(await post(chunked(chunks), ...parts)).toStartWith("HTTP/1.1 201 ");
  const before = await state();
  for (const response of [
    await post(chunked([...halves, " "]), ...parts),
    await post(chunked([...halves, " "], false), ...parts), // Its size is counted while it is read.
    await post("{", type, "Content-Length: 99999999999"),
  ]) {
    expect(response).toStartWith("HTTP/1.1 413 ");
    expect(response).toContain('{"data":null,"error":"');
  }
  const head = rawRequest("POST", "/api/v1/users", { token, headers: parts, keepAlive: true });
  const rejected = await server.raw(head + chunked([...newText().padEnd(1025)]), /\}$/);
  expect(rejected).toStartWith("HTTP/1.1 413 ");
  expect(rejected).toMatch(/\r\nconnection: close\r\n/i);
  expect(rejected).toContain("the request body must have at most 1024 chunks");
  expect(await state()).toEqual(before);
});

test("POST /users accepts a byte order mark", async () => {
  expectAccepted(await send(server, "POST", "/users", bytes([0xef, 0xbb, 0xbf], newText())));
});

const array = (depth: number) => "[".repeat(depth) + "]".repeat(depth);
const open = '{"email":"a@hunter2.example"';

/** Bodies by the problem or its beginning: json.test.ts and record-input.test.ts have more. */
const invalidBodies: [problem: string, ...bodies: (string | Uint8Array<ArrayBuffer>)[]][] = [
  ["body must be valid JSON", "", "\u00a0{}", "\ufeff", "\ufeff\ufeff{}", '{"a":"hunter2'],
  ["body must be a JSON object", "[]", '"hunter2"', "null", "1", `[${open}}]`, array(16)],
  ["body must not be nested deeper than 16 levels", array(17), array(30_000)],
  ["a is not allowed", `${open},"a":${array(15)}}`],
  ["zz is given more than once", `${open},"zz":1,"\\u007az":"hunter2"}`],
  ["items[0].sku is given more than once", '{"items":[{"sku":"a","sku":"hunter2"}]}'],
  [
    "body must be valid UTF-8",
    ...["ff", "c0af", "eda080", "f5808080", "e282"].map((bad) =>
      bytes(`${open},"zz":"hunter2`, [...Buffer.from(bad, "hex")], '"}'),
    ),
    bytes([0xff, 0xfe], [...Buffer.from(`${open}}`, "utf16le")]),
  ],
  ...["__proto__", "constructor", "toString"].map((name): (typeof invalidBodies)[0] => [
    `${name} is not allowed`,
    `${open},"${name}":{"name":"hunter2","email":"hunter2"}}`,
  ]),
  [
    "",
    ...["\\u0000", "\\ud800"].map((name) => `${open},"${name}":"hunter2"}`),
    `{"items":["hunter2",${"[],".repeat(20_000)}[]]}`,
    `{"metadata":{${Array.from({ length: 4000 }, (_, at) => `"k${at}":[]`).join()}}}`,
    `{"email":"${"a@".repeat(30_000)}","currency":"${" ".repeat(4_000)}"}`,
    `{"version":1e${"9".repeat(60_000)}}`,
    `{"${"a".repeat(60_000)}":1}`,
  ],
];

test("POST /users returns 400 and changes nothing when the body is invalid", async () => {
  const before = await state();
  for (const [problem, ...bodies] of invalidBodies) {
    const error = new RegExp(`^Validation failed: ${RegExp.escape(problem)}`);
    for (const body of bodies) {
      expectError(await send(server, "POST", "/users", body), 400, error, "hunter2");
    }
  }
  expect(await state()).toEqual(before);
});

test("PATCH /orders/:id returns 400, not 409, when the merged metadata is too large and the status is no step", async () => {
  const { id } = await newOrder(server, userId, { metadata: metadataOf(50) });
  const patch = (metadata: object) =>
    server.call("PATCH", `/orders/${id}`, { body: { status: "delivered", metadata } });
  const problem = "metadata must be an object of at most 50 entries";
  expectError(await patch({ extra: "v" }), 400, `Validation failed: ${problem}`);
  expectError(await patch({ key_0: null, extra: "v" }), 409, /^cannot change status/);
});

/** 60 kB in UTF-8, and 6 kB: JSON writes a control character as six bytes. */
const wide = Object.fromEntries(
  Array.from({ length: 40 }, (_, at) => [`k${at}`, "漢".repeat(500)]),
);
const more = { a: "\u0001".repeat(500), b: "\u0001".repeat(500) };

/** @returns a body that is just within the limit, but whose record is not */
function fill(body: object): object {
  const excess =
    Buffer.byteLength(JSON.stringify({ ...body, metadata: { ...wide, ...more } })) - limit;
  return { ...body, metadata: { ...wide, ...more, b: more.b.slice(Math.ceil(excess / 6)) } };
}

test("a write returns 400 and changes nothing when the record would exceed 64 KiB", async () => {
  const user = await newUser(server, { metadata: wide });
  const order = await newOrder(server, userId, { metadata: wide });
  const problem = `must be at most ${limit} bytes of JSON as a whole record`;
  for (const [request, body] of [
    ["POST /users", fill({ email: newEmail() })],
    ["POST /orders", fill({ user_id: userId, currency: "EUR", items })],
    [`PUT /users/${user.id}`, fill({ email: user.email })],
    [`PATCH /users/${user.id}`, { metadata: more }],
    [`PATCH /orders/${order.id}`, { status: "paid", metadata: more }],
  ] as const) {
    const [method = "", path = ""] = request.split(" ");
    const response = await server.call(method, path, { body });
    expectError(response, 400, `Validation failed: body ${problem}`);
    expect(response.json.meta.problems).toEqual([
      { field: "body", code: "length", problem, min: 0, max: limit },
    ]);
  }
  expect((await server.call("GET", `/users/${user.id}`)).json.data).toEqual(user);
  expect((await server.call("GET", `/orders/${order.id}`)).json.data).toEqual(order);
});
