import { expect, test } from "bun:test";
import { expectError, metadataOf, newEmail, newOrder, newUser, send, stored } from "./make.ts";
import { chunked, rawRequest, sendRaw } from "./raw.ts";
import { startSharedServer } from "./server.ts";

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
  json: () => JSON.stringify(route.good()),
}));
const state = () =>
  stored(server, `/users/${userId}`, `/orders/${orderId}`, "/users?limit=1", "/orders?limit=1");
const bytes = (...parts: (string | number[])[]) =>
  Uint8Array.from(
    parts.flatMap((part) => (typeof part === "string" ? [...Buffer.from(part)] : part)),
  );

test("DELETE /users/:id returns 400 when it has Idempotency-Key", async () => {
  const before = await state();
  const headers = { "idempotency-key": "a" };
  const response = await server.call("DELETE", `/users/${userId}`, { headers });
  expectError(response, 400, "Validation failed: Idempotency-Key is not allowed with DELETE");
  expect(await state()).toEqual(before);
});

for (const { route, method, path, json } of routes) {
  const merge = "application/merge-patch+json";
  const patch = method === "PATCH";
  const target = () => `/api/v1${path()}`;
  test(`${route} accepts JSON when the content type is JSON in any spelling, or missing`, async () => {
    for (const type of [
      ...["application/json", "APPLICATION/JSON", "application/json; charset=utf-8"],
      ...['Application/Json;charset="UTF-8"; x=y', "application/json ; charset=utf-8"],
      ...["utf8", "UTF8", "unicode-1-1-utf-8"].map((label) => `application/json; charset=${label}`),
      ...(patch ? [merge, "Application/Merge-Patch+JSON; charset=utf-8"] : []),
    ]) {
      const response = await send(server, method, path(), json(), type);
      expect([200, 201], `${type}: ${response.text}`).toContain(response.status);
    }
    const body = json();
    const untyped = `${rawRequest(method, target(), { token, headers: [`Content-Length: ${body.length}`] })}${body}`;
    expect(await server.raw(untyped)).toMatch(/^HTTP\/1\.1 20[01] /);
  });

  test(`${route} returns 415 when the content type is not JSON`, async () => {
    const before = await state();
    for (const type of [
      ...["text/plain", "text/json", "application/x-www-form-urlencoded", "application/jsonp"],
      ...["application/jsonx; charset=utf-8", "application/", "json", "application/ld+json", "*/*"],
      ...["multipart/form-data; boundary=x", "xxxxxxxxxxxxjson", "application/json5"],
      ...(patch ? ["application/json-patch+json"] : [merge]),
    ]) {
      const response = await send(server, method, path(), json(), type);
      expectError(response, 415, /./);
      expect(response.headers.has("accept-patch")).toBe(patch);
    }
    expect(await state()).toEqual(before);
  });

  test(`${route} returns 415 when the charset is not UTF-8`, async () => {
    const before = await state();
    for (const parameters of [
      ...["charset=utf-16", "CHARSET=UTF-16", 'charset="utf-16"', "charset=iso-8859-1", "charset="],
      ...[
        "charset=utf-8x",
        "x=y;charset=us-ascii",
        "charset=utf-8; charset=utf-16",
        "charset = ucs-2",
      ],
      ...['x="y;z\\""; charset=latin1'],
    ]) {
      const type = `application/json; ${parameters}`;
      const response = await send(server, method, path(), json(), type);
      expectError(response, 415, "the request body must be UTF-8");
      const accepted = patch ? `application/json, ${merge}` : null;
      expect(response.headers.get("accept-patch")).toBe(accepted);
    }
    expect(await state()).toEqual(before);
  });

  test(`${route} ignores other parameters of the content type, even if their value looks like a charset`, async () => {
    for (const parameters of [
      ...["version=1", "charset=utf-8; version=1", 'charset="utf\\-8"', "charset", ";", "x"],
      ...['x="; charset=utf-16"', 'x="\\"; charset=utf-16"', "xcharset=utf-16"],
    ]) {
      const type = `application/json; ${parameters}`;
      const response = await send(server, method, path(), json(), type);
      expect([200, 201], `${parameters}: ${response.text}`).toContain(response.status);
    }
  });

  const protections =
    method === "POST" ? { "If-Match": "*", "If-None-Match": '"1"' } : { "Idempotency-Key": "a" };
  test(`${route} returns 400 when it has ${Object.keys(protections).join(" or ")}`, async () => {
    const before = await state();
    for (const [name, value] of Object.entries(protections)) {
      const headers = { "content-type": "application/json", [name]: value };
      const response = await server.call(method, path(), { raw: json(), headers });
      expectError(response, 400, `Validation failed: ${name} is not allowed with ${method}`);
    }
    expect(await state()).toEqual(before);
  });

  if (method === "POST") {
    test(`${route} returns 400 when Idempotency-Key is malformed`, async () => {
      const before = await state();
      for (const key of ["", "k".repeat(256), "a b", "a\tb", "é", "ÿ", "a\u007f"]) {
        const headers = { "content-type": "application/json", "idempotency-key": key };
        const response = await server.call(method, path(), { raw: json(), headers });
        expectError(response, 400, /^Validation failed: Idempotency-Key must be 1 to 255 visible/);
      }
      expect(await state()).toEqual(before);
    });
  }

  test(`${route} accepts a body of the maximum size, and returns 413 when it is one byte larger`, async () => {
    const exact = await send(server, method, path(), json().padEnd(limit));
    expect([200, 201], exact.text).toContain(exact.status);
    const halves = [json().padEnd(limit / 2), " ".repeat(limit / 2)];
    const type = "Content-Type: application/json";
    const head = (header: string) =>
      rawRequest(method, target(), { token, headers: [type, header] });
    const parts = head("Transfer-Encoding: chunked");
    expect(await server.raw(`${parts}${chunked(halves)}`)).toMatch(/^HTTP\/1\.1 20[01] /);

    const before = await state();
    const more = await send(server, method, path(), json().padEnd(limit + 1));
    expectError(more, 413, /./);
    const malformed = await send(server, method, path(), "{".repeat(limit + 1)); // 413 before 400.
    expectError(malformed, 413, /./);
    for (const response of [
      await server.raw(`${parts}${chunked([...halves, " "])}`),
      await server.raw(`${parts}${chunked([...halves, " "], false)}`), // Its size is counted while it is read.
      await server.raw(`${head("Content-Length: 99999999999")}{`),
    ]) {
      expect(response).toMatch(/^HTTP\/1\.1 413 /);
      expect(response).toContain('{"data":null,"error":"');
    }
    expect(await state()).toEqual(before);
  });

  test(`${route} accepts a Content-Length that is given twice`, async () => {
    const body = json();
    const request = { token, headers: [`Content-Length: ${body.length}`], json: body };
    expect((await sendRaw(server, method, target(), request)).status).toBeOneOf([200, 201]);
  });

  test(`${route} accepts a byte order mark, and brackets in strings`, async () => {
    const marked = await send(server, method, path(), bytes([0xef, 0xbb, 0xbf], json()));
    expect([200, 201], marked.text).toContain(marked.status);
    const metadata = { k: `\\"${"[{".repeat(40)}`, 'q"': "]}" };
    const body = JSON.stringify({ ...JSON.parse(json()), metadata });
    const response = await send(server, method, path(), body.replaceAll("[{[", "\\u005b{["));
    expect(response.json.data.metadata).toMatchObject(metadata);
  });

  for (const { name, error, raw } of invalidBodies(json)) {
    test(`${route} returns 400 and changes nothing when the body ${name}`, async () => {
      const before = await state();
      expectError(await send(server, method, path(), raw()), 400, error, "hunter2");
      expect(await state()).toEqual(before);
    });
  }

  test(`${route} lists at most 20 problems when there are many`, async () => {
    for (const [count, listed] of [
      [3, 3],
      [20, 20],
      [21, 20],
      [900, 20],
    ] as const) {
      const unknown = Array.from({ length: count }, (_, at) => [`zz_${at}`, "hunter2"]);
      const body = { ...JSON.parse(json()), ...Object.fromEntries(unknown) };
      const response = await server.call(method, path(), { body });
      expectError(response, 400, /^Validation failed: zz_\d+ is not allowed$/, "hunter2");
      expect(response.json.meta.problems.length).toBe(listed);
    }
  });
}

/**
 * Bodies that every route rejects with a 400, one for each rule: json.test.ts has more. The response must not repeat
 * `hunter2`.
 */
function invalidBodies(
  json: () => string,
): { name: string; error: string | RegExp; raw: () => string | Uint8Array<ArrayBuffer> }[] {
  const failed = (text: string) => `Validation failed: ${text}`;
  const inside = (member: string) => () => `${json().slice(0, -1)},${member}}`;
  const array = (depth: number) => "[".repeat(depth) + "]".repeat(depth);
  const rows = (error: string | RegExp, texts: string[]) =>
    texts.map((raw) => ({ name: `is ${JSON.stringify(raw).slice(0, 32)}`, error, raw: () => raw }));
  const hostile = /^Validation failed: /;
  return [
    ...rows(failed("body must be valid JSON"), [
      ...[
        "",
        "  \n",
        "\u00a0{}",
        "\f{}",
        "\ufeff",
        "\ufeff\ufeff{}",
        '{"a":hunter2}',
        '{"a":"hunter2',
      ],
    ]),
    ...rows(failed("body must be a JSON object"), [
      ...["[]", '"hunter2"', "null", "1", "true", '[{"email":"hunter2@b.example"}]', array(16)],
    ]),
    ...rows(failed("body must not be nested deeper than 16 levels"), [array(17), array(30_000)]),
    {
      name: "nests an unknown member 16 levels deep",
      error: failed("a is not allowed"),
      raw: inside(`"a":${array(15)}`),
    },
    {
      name: "repeats a member",
      error: failed("zz is given more than once"),
      raw: inside('"zz":1,"\\u007az":"hunter2"'),
    },
    {
      name: "repeats a member inside items",
      error: failed("items[0].sku is given more than once"),
      raw: () => '{"items":[{"sku":"a","sku":"hunter2"}]}',
    },
    ...["ff", "c0af", "eda080", "f5808080", "e282"].map((bad) => ({
      name: `holds the bytes ${bad}`,
      error: failed("body must be valid UTF-8"),
      raw: () => bytes(json().slice(0, -1), ',"zz":"hunter2', [...Buffer.from(bad, "hex")], '"}'),
    })),
    {
      name: "is UTF-16",
      error: failed("body must be valid UTF-8"),
      raw: () => bytes([0xff, 0xfe], [...Buffer.from(json(), "utf16le")]),
    },
    ...["__proto__", "constructor", "toString", "hasOwnProperty", "nmae", "Metadata"].map((it) => ({
      name: `has the member ${it}`,
      error: failed(`${it} is not allowed`),
      raw: inside(`"${it}":{"name":"hunter2","email":"hunter2"}`),
    })),
    ...["\\u0000", "\\ud800", "a\\udc00b"].map((field) => ({
      name: `has a member named ${field}`,
      error: hostile,
      raw: inside(`"${field}":"hunter2"`),
    })),
    ...rows(hostile, [
      `{"items":["hunter2",${"[],".repeat(20_000)}[]]}`,
      `{"items":[${'{"sku":{}},'.repeat(5_000)}{}]}`,
      `{"metadata":{${Array.from({ length: 4000 }, (_, at) => `"k${at}":[]`).join()}}}`,
      `{"email":"${"a@".repeat(30_000)}","currency":"${" ".repeat(4_000)}"}`,
      `{"user_id":${"9".repeat(60_000)}}`,
      `{"version":1e${"9".repeat(60_000)}}`,
      `{"${"a".repeat(60_000)}":1}`,
    ]),
  ];
}

test("meta.problems lists every required field when the body is {}", async () => {
  for (const [method, path, fields] of [
    ["POST", "/users", ["email"]],
    ["PUT", `/users/${userId}`, ["email"]],
    ["POST", "/orders", ["currency", "items", "user_id"]],
  ] as const) {
    const response = await server.call(method, path, { body: {} });
    expectError(response, 400, /^Validation failed: \w+ is required$/);
    const { problems } = response.json.meta as { problems: { field: string; problem: string }[] };
    expect(problems.map((problem) => problem.field).sort()).toEqual([...fields]);
    expect(new Set(problems.map(({ problem }) => problem))).toEqual(new Set(["is required"]));
  }
});

test("PATCH /orders/:id returns 400, not 409, when metadata is too large and the status change is not allowed", async () => {
  const order = await newOrder(server, userId, { metadata: metadataOf(50) });
  const body = { status: "delivered", metadata: { extra: "v" } };
  const response = await server.call("PATCH", `/orders/${order.id}`, { body });
  expectError(response, 400, /^Validation failed: metadata must /);
  expect((await server.call("GET", `/orders/${order.id}`)).json.data).toEqual(order);
});

/** 60 kB in UTF-8. */
const wide = Object.fromEntries(
  Array.from({ length: 40 }, (_, at) => [`k${at}`, "漢".repeat(500)]),
);
/** 6 kB: JSON writes a control character as six bytes. */
const more = { a: "\u0001".repeat(500), b: "\u0001".repeat(500) };

/** @returns a body that is just within the limit, but whose record is not */
function fill(body: object): object {
  const filled = { ...body, metadata: { ...wide, ...more } };
  const excess = Buffer.byteLength(JSON.stringify(filled)) - limit;
  return { ...body, metadata: { ...wide, a: more.a, b: more.b.slice(Math.ceil(excess / 6)) } };
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

test("error is well-formed Unicode when it names a long field", async () => {
  for (const name of ["😀".repeat(120), `x${"😀".repeat(120)}`]) {
    const response = await server.call("POST", "/users", {
      body: { email: newEmail(), [name]: 1 },
    });
    expectError(response, 400, /is not allowed$/);
    expect(response.json.error.isWellFormed()).toBe(true);
  }
});
