import { describe, expect, test } from "bun:test";
import { expectError, expectUnauthorised, newEmail, newOrder, newUser } from "./make.ts";
import { type RawRequest, rawRequest, sendRaw } from "./raw.ts";
import {
  type CallOptions,
  logs,
  sendRequest,
  startServer,
  startSharedServer,
  type TestServer,
} from "./server.ts";

const server = await startSharedServer();
const user = await newUser(server);
const other = await newUser(server);
const order = await newOrder(server, user.id);

const JSON_TYPE = "application/json";
const read = { token: server.readToken };
const noToken = { token: null };
const large = { raw: " ".repeat(65_537), headers: { "content-type": JSON_TYPE } };
const form = { raw: "a=1", headers: { "content-type": "application/x-www-form-urlencoded" } };
const malformed = { raw: "{", headers: { "content-type": JSON_TYPE } };
const stale = { body: { name: "x" }, headers: { "if-match": '"99"' } };
const used = { "idempotency-key": crypto.randomUUID() };
await server.call("POST", "/users", { body: { email: newEmail() }, headers: used });

/** A request, e.g. `GET /users`, and the status of its response. */
interface Row extends CallOptions {
  readonly status: number;
  readonly request: string;
}

function withId(options: CallOptions, id: string): CallOptions {
  return { ...options, headers: { ...options.headers, "x-request-id": id } };
}

test.each([
  ...["a", "!", "~", '0,1;x="y"', "x".repeat(128), "__proto__", "%0a"].map(
    (id) => [id, true] as const,
  ),
  ...["", "x".repeat(129), "a b", "a\tb", "é", "a\u007fb", "x".repeat(5000)].map(
    (id) => [id, false] as const,
  ),
])(
  "X-Request-Id is echoed, or replaced by one that is unique, when it is %j: %p",
  async (sent, isEchoed) => {
    const ids = new Set<string>();
    for (const options of [{}, noToken]) {
      const { headers } = await server.call("GET", "/users?limit=1", withId(options, sent));
      ids.add(headers.get("x-request-id") ?? "");
    }
    expect([ids.has(sent), ids.size]).toEqual([isEchoed, isEchoed ? 1 : 2]);
    for (const id of ids) expect(id).toMatch(/^[\x21-\x7e]{1,128}$/);
  },
);

/** @param target the whole path, with the query */
const sendAt = (method: string, target: string, request: RawRequest = {}) =>
  sendRaw(server, method, target, request);
const authorized = { token: server.writeToken };

const METHODS = "GET HEAD POST PUT PATCH DELETE OPTIONS TRACE CONNECT QUERY PURGE".split(" ");
test.each([
  ["/health", "GET, HEAD"],
  ["/docs", "GET, HEAD"],
  ["/users", "GET, HEAD, POST"],
  [`/users/${other.id}`, "GET, HEAD, PATCH, PUT, DELETE"],
  [`/orders/${order.id}`, "GET, HEAD, PATCH"],
  ["/orders/sums", "GET, HEAD"],
])("%s returns 405 with Allow when the method is none of %s", async (path, allow) => {
  const before = await server.call("GET", path);
  for (const method of METHODS.filter((method) => !allow.split(", ").includes(method))) {
    const empty = { headers: ["Content-Length: 0"] };
    const response = await sendAt(method, `/api/v1${path}`, { ...authorized, ...empty });
    expect([method, response.status]).toEqual([method, 405]);
    expect(response.headers.get("allow")?.split(", ").sort()).toEqual(allow.split(", ").sort());
    const { error, meta } = JSON.parse(response.text);
    expect(error).toContain(`method ${method} is not allowed here`);
    expect(meta).toEqual({ code: "method_not_allowed" });
  }
  expect((await server.call("GET", path)).text).toBe(before.text);
});

test.each([
  ..."/nope /users /api/v1 /api/v1/v1/users /api/v1//users /api/v1/users/ /api/v1/Users".split(" "),
  ..."/api/v1/users/1/ /api/v1/users%2f1 /api/v1/users/1/orders /openapi.json".split(" "),
  ...["&limit=9?limit=5", "&limit=9", ";limit=9", "%3Flimit=9"].map((end) => `/api/v1/users${end}`),
])("%s is a 404 when the request has a token, otherwise a 401", async (path) => {
  for (const method of ["GET", "DELETE"]) {
    const empty = { headers: ["Content-Length: 0"] };
    const response = await sendAt(method, path, { ...authorized, ...empty });
    expect([method, response.status]).toEqual([method, 404]);
    const error = { data: null, error: "not found", meta: { code: "not_found" } };
    expect(JSON.parse(response.text)).toEqual(error);
    expect(response.headers.get("link")).toBe('</api/v1/docs>; rel="service-doc"');
    expectUnauthorised(await sendAt(method, path, empty), ["Bearer"]);
  }
});

test.each(["/", "/api/v1/docs/", "http://x?/api/v1/users"])(
  "GET %s redirects to the reference, with and without a token, and is a 405 for other methods",
  async (path) => {
    for (const token of [null, server.writeToken, "x"]) {
      for (const method of ["GET", "HEAD"]) {
        const { status, headers, head, text } = await sendAt(method, path, { token });
        expect([method, status, text]).toEqual([method, 302, ""]);
        expect(headers.get("location")).toBe("/api/v1/docs");
        expect(headers.get("cache-control")).toBe("no-store");
        expect(headers.get("x-request-id")).toMatch(/^[\w-]+$/);
        expect(headers.has("content-type")).toBe(false);
        expect(head.match(/^date: /gim)).toHaveLength(1);
      }
    }
    expect((await sendAt("GET", path, { hosts: ["a", "b"] })).status).toBe(400);
    for (const method of ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"]) {
      const { status, headers } = await sendAt(method, path, { headers: ["Content-Length: 0"] });
      expect([method, status, headers.get("allow")]).toEqual([method, 405, "GET, HEAD"]);
    }
  },
);

test.each<[path: string, status: number, field: string | null]>([
  [`/users/${other.id}`, 200, null],
  [`/users/${other.id}`, 304, "If-None-Match: *"],
  [`/users/${other.id}`, 412, 'If-Match: "99"'],
  [`/orders/${order.id}`, 200, null],
  ["/orders/999999", 404, null],
  ["/orders/abc", 400, null],
  ["/users", 400, "Idempotency-Key: a"],
  ["/users", 401, "Authorization: Bearer x"],
  ["/nope", 404, null],
  ["/docs/swagger-ui.js", 200, null],
])(
  "HEAD %s has the headers of GET, with one Date and the id of the request, and no body, when its status is %i",
  async (path, status, field) => {
    const headers = ["X-Request-Id: same", ...(field === null ? [] : [field])];
    const request = status === 401 ? { headers } : { ...authorized, headers };
    const shown: unknown[] = [];
    for (const method of ["HEAD", "GET"]) {
      const response = await sendAt(method, `/api/v1${path}`, request);
      const dates = response.head.match(/^date: .*$/gim);
      expect([response.status, dates]).toEqual([status, [expect.stringMatching(/ GMT$/)]]);
      expect(response.headers.get("x-request-id")).toBe("same");
      if (method === "HEAD") expect(response.text).toBe("");
      shown.push([...response.headers].filter(([name]) => !/^(date|content-len)/.test(name)));
    }
    expect(shown[0]).toEqual(shown[1]);
  },
);

const BAD_KEY = { "idempotency-key": "a b" };
const [oneUser, oneOrder] = [`PATCH /users/${user.id}`, `PATCH /orders/${order.id}`];
const { items } = order;
const unknownUser = { user_id: 999_999, currency: "EUR", items };
/**
 * Each request has two or more errors. The response is that of the first one in the order of checks; most rows have two
 * that follow each other. Those without a scope are in auth.test.ts.
 */
test.each<Row & { over: number }>([
  { status: 404, over: 403, request: "POST /nope", body: {}, ...read },
  { status: 405, over: 403, request: "DELETE /users", ...read },
  { status: 405, over: 400, request: "POST /users/abc", ...malformed },
  { status: 403, over: 413, request: "POST /users", ...large, ...read },
  { status: 403, over: 415, request: "POST /orders", ...form, ...read },
  { status: 413, over: 400, request: "POST /users?a=1", ...large },
  { status: 413, over: 400, request: "POST /orders", ...large, raw: "x".repeat(3_000_000) },
  { status: 415, over: 413, request: "POST /users", ...form, raw: large.raw },
  { status: 400, over: 404, request: "PATCH /users/999999", body: { nmae: 1 } },
  { status: 400, over: 404, request: "DELETE /users/999999", headers: { "if-match": "1" } },
  { status: 400, over: 404, request: "GET /orders/-1?x=1" },
  { status: 400, over: 412, request: "GET /users/%zz", headers: stale.headers },
  { status: 400, over: 412, request: `PATCH /users/${user.id}`, ...stale, body: { version: 1 } },
  { status: 400, over: 409, request: "POST /users", body: { email: user.email }, headers: BAD_KEY },
  { status: 400, over: 422, request: "POST /users", body: { nmae: 1 }, headers: used },
  { status: 400, over: 422, request: "PATCH /users/999999", body: { nmae: 1 }, headers: used },
  { status: 422, over: 404, request: "PATCH /users/999999", body: {}, headers: used },
  { status: 422, over: 412, request: oneUser, body: {}, headers: { ...stale.headers, ...used } },
  { status: 422, over: 409, request: "POST /users", body: { email: user.email }, headers: used },
  { status: 422, over: 400, request: "POST /orders", body: unknownUser, headers: used },
  { status: 404, over: 412, request: "PATCH /users/999999", ...stale },
  { status: 404, over: 412, request: "DELETE /users/999999", headers: { "if-none-match": "*" } },
  { status: 404, over: 400, request: "PATCH /orders/999999", body: { user_id: 999_999 } },
  { status: 412, over: 200, request: oneUser, ...stale, body: {} },
  { status: 412, over: 409, request: oneUser, ...stale, body: { email: other.email } },
  { status: 412, over: 409, request: `DELETE /users/${user.id}`, headers: stale.headers },
  { status: 412, over: 409, request: oneOrder, ...stale, body: { status: "delivered" } },
  { status: 412, over: 400, request: oneOrder, ...stale, body: { user_id: 999_999 } },
])(
  "$status comes before $over when both apply, and 401 before both: $request",
  async ({ status, request, ...options }) => {
    const response = await sendRequest(server, request, options);
    expect(response.status, response.text).toBe(status);
    for (const [token, challenge] of [
      [null, "Bearer"],
      ["garbage", 'Bearer error="invalid_token"'],
    ] as const)
      expectUnauthorised(await sendRequest(server, request, { ...options, token }), [challenge]);
  },
);

test("a client that waits for another interim response than 100-continue gets 417 immediately, and no other one", async () => {
  const email = newEmail();
  const json = JSON.stringify({ email });
  // The body that is announced never arrives.
  const send = (expected: string, token: string | null, method = "POST", path = "/users") => {
    const length = `Content-Length: ${json.length}`;
    const headers = [`Expect: ${expected}`, `Content-Type: ${JSON_TYPE}`, length];
    const request = rawRequest(method, `/api/v1${path}`, { token, headers, keepAlive: true });
    return server.raw(request, /^HTTP.* 100 .*\r\n\r\n$|unauthorised$/);
  };
  const token = server.writeToken;
  for (const response of await Promise.all([
    ...["100-Continue", "100-CONTINUE", "100-continue, a", "a", ""].map((one) => send(one, token)),
    ...[
      send("a", token, "DELETE"),
      send("a", token, "POST", "/none"),
      send("a", null, "GET", "/health"),
    ],
  ])) {
    expect(response).toMatch(/^HTTP\/1\.1 417 .*\r\n/);
    expect(response).toMatch(/\r\nconnection: close\r\n/i);
    expect(response).toEndWith('"meta":{"code":"expectation_failed"}}');
  }
  expect(await send("100-Continue", null)).toStartWith("HTTP/1.1 401 ");
  expect(await send("100-continue", token)).toBe("HTTP/1.1 100 Continue\r\n\r\n");
  const headers = ["Expect: 100-continue"];
  const request = rawRequest("POST", "/api/v1/users", { token, headers, json });
  expect(await server.raw(request)).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 201 /);
});

test("RATE_LIMIT returns 429 with Retry-After when a token exceeds it, after 404, 405 and 403, and before other errors", async () => {
  await using limited = await startServer({ RATE_LIMIT: "2" });
  const { readToken, writeToken } = limited;
  expect((await limited.call("GET", "/users")).status).toBe(200);
  for (const [request, statuses, options] of [
    ["GET /users", [200, 429], {}],
    ["GET /health", [200], noToken],
    ["GET /users", [401], noToken],
    ["GET /nope", [404], {}],
    ["DELETE /users", [405], {}],
    ["POST /users", [403], { body: {} }],
    ["POST /users", [413, 429], { ...large, token: writeToken }],
    ["POST /users", [400, 429], { ...malformed, token: writeToken }],
    ["GET /orders/abc", [400, 429], {}],
  ] as const) {
    const sent = Array.from({ length: 20 }, () =>
      sendRequest(limited, request, { token: readToken, ...options }),
    );
    const responses = await Promise.all(sent);
    // What is left of the rate depends on the time.
    const seen = [...new Set(responses.map(({ status }) => status))];
    expect<number[]>([...statuses]).toEqual(expect.arrayContaining(seen));
    expect(seen).toContain(Math.max(...statuses));
    for (const response of responses.filter(({ status }) => status === 429)) {
      expectError(response, 429, "too many requests with this token");
      expect(response.headers.get("retry-after")).toBe("1");
    }
  }
});

describe("CORS_ORIGIN", () => {
  const askedHeaders = "authorization,baggage,content-type,if-match,traceparent";
  const preflight = {
    "access-control-request-method": "PATCH",
    "access-control-request-headers": askedHeaders,
  };
  const exposed =
    "Age, ETag, Link, Location, Retry-After, X-Request-Id, Idempotent-Replayed, Allow, Accept-Patch, WWW-Authenticate";
  const ask = (at: TestServer, origin: string, request: string, options: CallOptions) =>
    sendRequest(at, request, { ...options, headers: { ...options.headers, origin } });

  test("CORS_ORIGIN allows exactly its origins to read every response, and to ask without a token", async () => {
    const allowed = ["https://a.example", "http://b.example:8080"];
    await using open = await startServer({ CORS_ORIGIN: allowed.join(",") });
    const calls: [request: string, options: CallOptions][] = [
      ["GET /health", noToken],
      ["POST /users", { body: { email: newEmail() } }],
      ["GET /users", noToken],
      ["GET /nope", {}],
      ["POST /users", large],
    ];
    const asking = { ...noToken, headers: preflight };
    for (const origin of allowed) {
      for (const call of calls) {
        const { headers } = await ask(open, origin, ...call);
        expect(headers.get("access-control-allow-origin")).toBe(origin);
        expect(headers.get("access-control-expose-headers")).toBe(exposed);
        expect(headers.get("vary")).toBe("Origin");
      }
      for (const path of ["/users", "/orders/1"]) {
        const { status, text, headers } = await ask(open, origin, `OPTIONS ${path}`, asking);
        expect([status, text]).toEqual([204, ""]);
        expect(headers.get("access-control-allow-origin")).toBe(origin);
        const methods = headers.get("access-control-allow-methods")?.split(", ").sort();
        expect(methods).toEqual(["DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"]);
        expect(headers.get("access-control-allow-headers")).toBe(askedHeaders);
        expect(headers.has("access-control-allow-credentials")).toBe(false);
        expect(Number(headers.get("access-control-max-age"))).toBeGreaterThan(0);
      }
      expect((await ask(open, origin, "OPTIONS /users", noToken)).status).toBe(401);
    }
    for (const origin of [
      ...["https://a.example.evil", "http://a.example", "https://a.example:1", "null", "*"],
      ...["https://A.example", "https://a.example/", "https://a.example, http://b.example:8080"],
    ]) {
      for (const [request, options] of [...calls, ["OPTIONS /users", asking] as const]) {
        const { status, headers } = await ask(open, origin, request, options);
        expect([status === 204, headers.has("access-control-allow-origin")]).toEqual([
          false,
          false,
        ]);
      }
    }
  });

  test("CORS_ORIGIN=* allows every origin, but no credentials, and Origin has no effect without it", async () => {
    await using open = await startServer({ CORS_ORIGIN: "*" });
    const { headers } = await ask(open, "https://a.example", "GET /health", {});
    expect(headers.get("access-control-allow-origin")).toBe("https://a.example");
    expect(headers.has("access-control-allow-credentials")).toBe(false);
    const { headers: without } = await open.call("GET", "/health");
    expect(without.get("vary")).toBe("Origin");
    expect(without.has("access-control-allow-origin")).toBe(false);
    for (const [expected, request] of [
      [200, "GET /users?limit=1"],
      [405, "OPTIONS /users"],
    ] as const) {
      const got = await ask(server, "https://a.example", request, { headers: preflight });
      const isAllowed = got.headers.has("access-control-allow-origin");
      expect([got.status, isAllowed]).toEqual([expected, false]);
    }
  });
});

describe("the log", () => {
  const encoded = encodeURIComponent(user.email);
  const linesOf = async (id: string) =>
    (await logs(server)).filter((line) => line["request_id"] === id);

  test.each<Row & { route: string; name?: string }>([
    { status: 200, route: "/api/v1/users", request: "GET /users", ...read, name: "read-test" },
    { status: 200, route: "/api/v1/users", request: `GET /users?email=${encoded}` },
    { status: 400, route: "/api/v1/users", request: "POST /users", body: { secret: "secret" } },
    { status: 404, route: "/api/v1/orders/:id", request: "GET /orders/999999" },
    { status: 412, route: "/api/v1/users/:id", request: `PATCH /users/${user.id}`, ...stale },
    { status: 401, route: "/api/v1/users", request: "GET /users", ...noToken },
  ])(
    "the log has one line without secrets when $request returns $status",
    async ({ status, route, request, name = "write-test", ...options }) => {
      const id = crypto.randomUUID();
      await sendRequest(server, request, withId(options, id));
      const [line, ...more] = await linesOf(id);
      expect(more).toEqual([]);
      const [method] = request.split(" ");
      expect(line).toMatchObject({ method, route, status, request_id: id });
      expect(line?.["token"]).toBe(options.token === null ? undefined : name);
      expect(line?.["client"]).toBe(status === 401 ? "127.0.0.1" : undefined);
      expect(typeof line?.["duration_ms"]).toBe("number");
      const secrets = [server.writeToken, user.email, encoded, "secret"];
      for (const secret of secrets) expect(JSON.stringify(line)).not.toContain(secret);
    },
  );

  const [traceId, parentId] = ["4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"];

  test.each([
    [`00-${traceId}-${parentId}-01`, traceId],
    [`cc-${traceId}-${parentId}-01-what.the-future-brings`, traceId],
    [`00-${traceId}-${parentId}-01-more`, undefined],
    [`ff-${traceId}-${parentId}-01`, undefined],
    [`00-${"0".repeat(32)}-${parentId}-01`, undefined],
    [`00-${traceId.toUpperCase()}-${parentId}-01`, undefined],
    [`00-${traceId}-${parentId}-01, 00-${traceId}-${parentId}-01`, undefined],
    ["secret", undefined],
  ])("the log has the trace id of %s when it is valid", async (traceparent, expected) => {
    const id = crypto.randomUUID();
    const headers = { "x-request-id": id, traceparent };
    const response = await server.call("GET", "/users/0", { headers });
    const [line] = await linesOf(id);
    expect(line?.["trace_id"]).toBe(expected);
    expect(JSON.stringify([line, ...response.headers])).not.toMatch(/secret|traceparent/);
  });

  test("the log has the id of the record when it was created, changed or deleted", async () => {
    const requestId = crypto.randomUUID();
    const send = (method: string, path: string, body?: unknown) =>
      server.call(method, path, withId({ ...(body === undefined ? {} : { body }) }, requestId));
    const { id } = (await send("POST", "/users", { email: newEmail() })).json.data;
    await send("GET", `/users/${id}`);
    await send("PATCH", `/users/${id}`, { name: "Ann" });
    await send("PATCH", `/users/${id}`, { name: 1 });
    await send("DELETE", `/users/${id}`);
    await send("DELETE", `/users/${id}`);
    const ids = (await linesOf(requestId)).map((line) => line["record_id"]);
    expect(ids).toEqual([id, undefined, id, undefined, id, undefined]);
  });
});
