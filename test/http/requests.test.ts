import { afterAll, describe, expect, test } from "bun:test";
import { newEmail, newOrder, newUser } from "./make.ts";
import { chunked, type RawRequest, rawRequest, sendRaw } from "./raw.ts";
import {
  type CallOptions,
  logs,
  startServer,
  type TestResponse,
  type TestServer,
} from "./server.ts";

const server = await startServer();
afterAll(() => server[Symbol.asyncDispose]());
const user = await newUser(server);
const other = await newUser(server);
const order = await newOrder(server, user.id);
const spare = await newUser(server);

const JSON_TYPE = "application/json";
const TEXT_TYPE = "text/plain; charset=utf-8";
const read = { token: server.read_token };
const no_token = { token: null };
const large = { raw: " ".repeat(65_537), headers: { "content-type": JSON_TYPE } };
const form = { raw: "a=1", headers: { "content-type": "application/x-www-form-urlencoded" } };
const malformed = { raw: "{", headers: { "content-type": JSON_TYPE } };
const stale = { body: { name: "x" }, headers: { "if-match": '"99"' } };
const used = { "idempotency-key": crypto.randomUUID() };
await server.call("POST", "/users", { body: { email: newEmail() }, headers: used });

/** One request for each kind of response, with its format and caching. */
const KINDS: [status: number, kind: "one" | "list" | "json" | "text" | "error", ...Call][] = [
  [200, "json", "GET", "/health", {}],
  [200, "list", "GET", "/users?limit=1", {}],
  [200, "list", "GET", "/orders?limit=1&offset=1000", {}],
  [200, "one", "GET", `/users/${user.id}`, {}],
  [200, "one", "GET", `/orders/${order.id}`, {}],
  [201, "one", "POST", "/users", { body: { email: newEmail() } }],
  [201, "one", "POST", "/orders", { body: { ...orderBody(), user_id: user.id } }],
  [200, "one", "PATCH", `/users/${user.id}`, { body: { name: "A" } }],
  [200, "one", "PATCH", `/users/${user.id}`, { body: {} }],
  [200, "one", "PATCH", `/orders/${order.id}`, { body: { metadata: { a: "b" } } }],
  [200, "one", "PUT", `/users/${other.id}`, { body: { email: newEmail() } }],
  [200, "json", "DELETE", `/users/${spare.id}`, {}],
  [400, "error", "POST", "/users", { body: { nmae: 1 } }],
  [400, "error", "POST", "/orders", malformed],
  [400, "error", "GET", "/users?limit=0", {}],
  [400, "error", "GET", "/users/abc", {}],
  [400, "error", "GET", "/health?a=1", {}],
  [400, "text", "GET", "/orders/abc", {}],
  [401, "text", "GET", "/users", no_token],
  [401, "text", "GET", "/nope", no_token],
  [403, "error", "POST", "/users", { body: {}, ...read }],
  [404, "error", "GET", "/nope", {}],
  [404, "error", "GET", "/users/", {}],
  [404, "error", "GET", "/users/999999", {}],
  [404, "text", "GET", "/orders/999999", {}],
  [404, "text", "PATCH", "/orders/999999", { body: {} }],
  [405, "error", "DELETE", "/users", {}],
  [409, "error", "DELETE", `/users/${user.id}`, {}],
  [409, "error", "POST", "/users", { body: { email: user.email } }],
  [412, "error", "PATCH", `/users/${user.id}`, stale],
  [413, "error", "POST", "/users", large],
  [415, "error", "POST", "/users", form],
  [422, "error", "POST", "/users", { body: { email: newEmail() }, headers: used }],
  [304, "one", "GET", `/users/${other.id}`, { headers: { "if-none-match": "*" } }],
];
type Call = [method: string, path: string, options: CallOptions];

function orderBody() {
  return { user_id: user.id, currency: "EUR", items: [{ sku: "a", quantity: 1, unit_price: 1 }] };
}

function withId(options: CallOptions, id: string): CallOptions {
  return { ...options, headers: { ...options.headers, "x-request-id": id } };
}

test.each(KINDS)(
  "a %i has the type, caching, envelope and request id of its kind (%s) for %s %s",
  async (status, kind, method, path, options) => {
    const id = `r-${crypto.randomUUID()}`;
    const response = await server.call(method, path, withId(options, id));
    expect(response.status, response.text).toBe(status);
    expect(response.headers.get("x-request-id")).toBe(id);
    const caching = kind === "one" ? "private, no-cache" : "no-store";
    expect(response.headers.get("cache-control")).toBe(caching);
    expect(response.headers.has("etag")).toBe(kind === "one");
    expect(response.headers.has("idempotent-replayed")).toBe(false);
    expect(response.headers.has("server") || response.headers.has("x-powered-by")).toBe(false);
    if (status === 304) return expect(response.text).toBe("");
    expect(response.headers.get("content-type")).toBe(kind === "text" ? TEXT_TYPE : JSON_TYPE);
    if (kind === "text") return expect(response.text).not.toMatch(/[\n{]/);
    const { data, error, meta, ...rest } = response.json;
    expect(rest).toEqual({});
    if (kind === "error") {
      expect([data, typeof error, error.length > 3]).toEqual([null, "string", true]);
      expect(Object.keys(meta)).toEqual(status === 400 ? ["code", "problems"] : ["code"]);
      expect(meta.code).toMatch(/^[a-z]+(?:_[a-z]+)*$/);
    } else {
      expect([error, Array.isArray(data)]).toEqual([null, kind === "list"]);
      expect(Object.keys(meta ?? {})).toEqual(kind === "list" ? ["total", "limit", "offset"] : []);
    }
  },
);

describe("X-Request-Id", () => {
  test.each(["a", "!", "~", '0,1;x="y"', "x".repeat(128), "__proto__", "%0a"])(
    "X-Request-Id is echoed when it is %s",
    async (id) => {
      const response = await server.call("GET", "/health", withId({}, id));
      expect(response.headers.get("x-request-id")).toBe(id);
    },
  );

  test.each(["", "x".repeat(129), "a b", "a\tb", "é", "a\u007fb", "x".repeat(5000)])(
    "X-Request-Id is replaced by a generated one when it is %j",
    async (id) => {
      for (const options of [{}, no_token]) {
        const response = await server.call("GET", "/users?limit=1", withId(options, id));
        expect(response.headers.get("x-request-id")).toMatch(/^[\x21-\x7e]{1,128}$/);
        expect(response.headers.get("x-request-id")).not.toBe(id);
      }
    },
  );

  test("X-Request-Id is unique when the client sends none", async () => {
    for (const path of ["/health", `/users/${user.id}`]) {
      const asked = Array.from({ length: 20 }, () => server.call("GET", path));
      const ids = (await Promise.all(asked)).map((response) =>
        response.headers.get("x-request-id"),
      );
      expect(new Set(ids).size).toBe(20);
    }
  });
});

/** @param target the whole path, with the query */
const sendAt = (method: string, target: string, request: RawRequest = {}) =>
  sendRaw(server, method, target, request);
const authorized = { token: server.write_token };

const METHODS = "GET HEAD POST PUT PATCH DELETE OPTIONS TRACE CONNECT PROPFIND QUERY PURGE".split(
  " ",
);
test.each([
  ["/health", "GET, HEAD"],
  ["/users", "GET, HEAD, POST"],
  [`/users/${other.id}`, "GET, HEAD, PATCH, PUT, DELETE"],
  ["/orders", "GET, HEAD, POST"],
  [`/orders/${order.id}`, "GET, HEAD, PATCH"],
])("%s returns 405 with Allow when the method is none of %s", async (path, allow) => {
  const before = await server.call("GET", path);
  for (const method of METHODS.filter((method) => !allow.split(", ").includes(method))) {
    const empty = { headers: ["Content-Length: 0"] };
    const response = await sendAt(method, `/api/v1${path}`, { ...authorized, ...empty });
    expect([method, response.status]).toEqual([method, 405]);
    expect(response.headers.get("allow")?.split(", ").sort()).toEqual(allow.split(", ").sort());
    expect(JSON.parse(response.text)).toMatchObject({
      data: null,
      error: expect.stringContaining(`method ${method} is not allowed here`),
      meta: { code: "method_not_allowed" },
    });
    if (path === "/health") continue;
    expect((await sendAt(method, `/api/v1${path}`, empty)).status).toBe(401);
  }
  expect((await server.call("GET", path)).text).toBe(before.text);
});

/** Unknown paths → the path that the message suggests; `null` for none. */
const UNKNOWN_PATHS: [path: string, suggested: string | null][] = [
  ["/nope", null],
  ["/api", null],
  ["/api/v1", null],
  ["/api/v1/", null],
  ["/api/v1/nope", null],
  ["/api/v1//users", null],
  ["/api/v1/Users", null],
  ["/api/v1/users.json", null],
  ["/api/v1/openapi-json", null],
  ["/api/v1/getUsers", null],
  ["/api/v1/users%2f1", null],
  ["/api/v1/users;a=1", null],
  ["/api/v1/users//1", null],
  ["/api/v1/users/1/orders", null],
  ["/api/v1/docs/nope", null],
  ["/api/v2/users", null],
  ["/api/v1/users/", "/api/v1/users"],
  ["/api/v1/users/1/", "/api/v1/users/:id"],
  [`/api/v1/users/${"1".repeat(1000)}/`, "/api/v1/users/:id"],
  ["/api/v1/health/", "/api/v1/health"],
  ["/api/v1/user", "/api/v1/users"],
  ["/api/v1/user/1", "/api/v1/users/:id"],
  ["/api/v1/order", "/api/v1/orders"],
  ["/api/v1/order/1", "/api/v1/orders/:id"],
  ["/api/v1/v1/users", null],
  ["/users", "/api/v1/users"],
  ["/users?limit=1", "/api/v1/users"],
  ["/users/1", "/api/v1/users/:id"],
  ["/v1/users", "/api/v1/users"],
  ["/api/orders", "/api/v1/orders"],
  ["/user/1/", "/api/v1/users/:id"],
  ["/docs", "/api/v1/docs"],
  ["/openapi.json", "/api/v1/openapi.json"],
];
test.each(UNKNOWN_PATHS)(
  "%s returns a 404 that suggests %s when the request has a token, otherwise a 401",
  async (path, suggested) => {
    const error = suggested === null ? "not found" : `not found: did you mean ${suggested}?`;
    for (const method of ["GET", "POST", "DELETE"]) {
      const empty = { headers: ["Content-Length: 0"] };
      const response = await sendAt(method, path, { ...authorized, ...empty });
      expect([method, response.status]).toEqual([method, 404]);
      expect(JSON.parse(response.text)).toEqual({ data: null, error, meta: { code: "not_found" } });
      expect(response.headers.get("link")).toBe('</api/v1/docs>; rel="service-doc"');
      const without = await sendAt(method, path, empty);
      expect([without.status, without.text]).toEqual([401, "unauthorised"]);
      expect(without.headers.get("link")).toBe('</api/v1/docs>; rel="service-doc"');
    }
  },
);

describe.each(["/", "/api/v1/docs/"])("GET %s", (path) => {
  test("redirects to the reference, with and without a token", async () => {
    for (const token of [null, server.write_token, "x"]) {
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
  });

  test("is a 400 if Host is invalid, and a 405 for other methods", async () => {
    expect((await sendAt("GET", path, { hosts: ["a", "b"] })).status).toBe(400);
    for (const method of ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"]) {
      const { status, headers } = await sendAt(method, path, { headers: ["Content-Length: 0"] });
      expect([method, status, headers.get("allow")]).toEqual([method, 405, "GET, HEAD"]);
    }
  });
});

test.each(KINDS.filter(([, , method]) => method === "GET"))(
  "HEAD returns the headers of GET without the body when GET returns %i (%s): %s %s",
  async (_status, _kind, _method, path, options) => {
    const [get, head] = [
      await server.call("GET", path, withId(options, "same")),
      await server.call("HEAD", path, withId(options, "same")),
    ];
    expect(head.status).toBe(get.status);
    expect(head.text).toBe("");
    const shown = (response: TestResponse) =>
      [...response.headers].filter(([name]) => !/^(date|content-length|connection)$/.test(name));
    expect(shown(head)).toEqual(shown(get));
  },
);

test.each<[path: string, status: number, field: string | null]>([
  ["/health", 200, null],
  ["/users", 200, null],
  [`/users/${other.id}`, 200, null],
  [`/users/${other.id}`, 304, "If-None-Match: *"],
  [`/users/${other.id}`, 412, 'If-Match: "99"'],
  [`/orders/${order.id}`, 200, null],
  ["/orders/999999", 404, null],
  ["/users?limit=0", 400, null],
  ["/users", 401, "Authorization: Bearer x"],
  ["/nope", 404, null],
  ["/metrics", 200, null],
  ["/openapi.json", 200, null],
  ["/docs", 200, null],
  ["/docs", 304, "If-None-Match: *"],
  ["/docs/swagger-ui.js", 200, null],
  ["/docs/swagger-ui.js", 200, "Accept-Encoding: br"],
])(
  "HEAD %s has one Date, like GET, and no body, when its status is %i",
  async (path, status, field) => {
    const headers = field === null ? [] : [field];
    const request = status === 401 ? { headers } : { ...authorized, headers };
    for (const method of ["HEAD", "GET"]) {
      const response = await sendAt(method, `/api/v1${path}`, request);
      const dates = response.head.match(/^date: .*$/gim) ?? [];
      expect([method, response.status, dates.length]).toEqual([method, status, 1]);
      if (method === "HEAD") expect(response.text).toBe("");
      const sent_ms = Date.parse(dates[0]?.slice("date: ".length) ?? "");
      expect(Date.now() - sent_ms).toBeWithin(-1_000, 5_000);
      expect(dates[0]).toEndWith(" GMT");
    }
  },
);

/** Each request has two or more errors. The response is that of the first one in the order of checks. */
const BAD_KEY = { "idempotency-key": "a b" };
test.each<[status: number, over: string, ...Call]>([
  [401, "404", "GET", "/nope", no_token],
  [401, "405", "DELETE", "/users", no_token],
  [401, "413", "POST", "/users", { ...large, ...no_token }],
  [401, "415", "POST", "/users", { ...form, ...no_token }],
  [401, "400", "POST", "/users", { ...malformed, ...no_token }],
  [401, "400 of a query", "GET", "/users?a=1", no_token],
  [401, "404 of a record", "GET", "/orders/999999", no_token],
  [401, "412", "PATCH", `/users/${user.id}`, { ...stale, ...no_token }],
  [404, "403", "POST", "/nope", { body: {}, ...read }],
  [404, "413", "POST", "/nope", large],
  [404, "415", "POST", "/nope", form],
  [404, "400", "POST", "/nope?a=1&a=2", malformed],
  [405, "403", "DELETE", "/users", read],
  [405, "413", "PUT", "/orders", large],
  [405, "415", "PUT", "/users", form],
  [405, "400 of the id", "POST", "/users/abc", malformed],
  [405, "400 of the order id", "PUT", "/orders/abc", malformed],
  [405, "404 of a record", "DELETE", "/orders/999999", {}],
  [403, "413", "POST", "/users", { ...large, ...read }],
  [403, "415", "POST", "/orders", { ...form, ...read }],
  [403, "400", "PUT", "/users/abc?a=1", { ...malformed, ...read }],
  [403, "404 of a record", "DELETE", "/users/999999", read],
  [403, "412", "PATCH", `/users/${user.id}`, { ...stale, ...read }],
  [413, "400", "POST", "/users?a=1", large],
  [413, "400 of the id", "PATCH", "/orders/abc", large],
  [413, "404 of a record", "PATCH", "/users/999999", large],
  [415, "400", "POST", "/users", { ...form, raw: "{" }],
  [415, "400 of the id", "PUT", "/users/abc", form],
  [415, "404 of a record", "PATCH", "/orders/999999", form],
  [
    415,
    "412",
    "PATCH",
    `/users/${user.id}`,
    { raw: "{}", headers: { ...form.headers, "if-match": '"99"' } },
  ],
  [400, "404 of a record, by body", "PATCH", "/users/999999", { body: { nmae: 1 } }],
  [400, "404 of a record, by query", "GET", "/users/999999?a=1", {}],
  [
    400,
    "404 of a record, by If-Match",
    "DELETE",
    "/users/999999",
    { headers: { "if-match": "1" } },
  ],
  [400, "404 of an id that no record has", "DELETE", "/users/9007199254740993?x=1", {}],
  [400, "404 of an order, by query", "GET", "/orders/-1?x=1", {}],
  [400, "404 of an order, by body", "PATCH", "/orders/999999", { body: { status: "lost" } }],
  [400, "412", "PATCH", `/users/${user.id}`, { ...stale, body: { version: 1 } }],
  [400, "409", "POST", "/users", { body: { email: user.email, nmae: 1 } }],
  [400, "409, by the key", "POST", "/users", { body: { email: user.email }, headers: BAD_KEY }],
  [400, "422", "POST", "/users", { body: { nmae: 1 }, headers: used }],
  [404, "412", "PATCH", "/users/999999", stale],
  [404, "412 of an order", "PATCH", "/orders/999999", { ...stale, body: {} }],
  [404, "409", "PUT", "/users/999999", { body: { email: user.email } }],
  [404, "409 of a step", "PATCH", "/orders/999999", { body: { status: "delivered" } }],
])("%i comes before %s when both apply: %s %s", async (status, _over, method, path, options) => {
  const response = await server.call(method, path, options);
  expect(response.status, response.text).toBe(status);
});

test("413 comes before 400 when a chunked body is too large and Idempotency-Key is malformed", async () => {
  const headers = [
    `Content-Type: ${JSON_TYPE}`,
    "Transfer-Encoding: chunked",
    "Idempotency-Key: a b",
  ];
  const head = rawRequest("POST", "/api/v1/users", { ...authorized, headers });
  const response = await server.raw(head + chunked([" ".repeat(70_000)]));
  expect(response).toStartWith("HTTP/1.1 413");
});

describe("RATE_LIMIT", () => {
  const burst = (at: TestServer, method: string, path: string, options: CallOptions = {}) =>
    Promise.all(Array.from({ length: 20 }, () => at.call(method, path, options)));
  const statuses = (responses: TestResponse[]) =>
    [...new Set(responses.map(({ status }) => status))].sort();

  test("RATE_LIMIT returns 429 with Retry-After when a token exceeds it", async () => {
    await using limited = await startServer({ RATE_LIMIT: "2" });
    const responses = await burst(limited, "GET", "/users");
    expect(statuses(responses)).toEqual([200, 429]);
    expect(responses.filter(({ status }) => status === 200).length).toBeGreaterThanOrEqual(2);
    for (const response of responses.filter(({ status }) => status === 429)) {
      expect(response.headers.get("retry-after")).toBe("1");
      expect(response.headers.get("cache-control")).toBe("no-store");
      expect(response.headers.get("content-type")).toBe(JSON_TYPE);
      expect(response.headers.get("x-request-id")).not.toBeNull();
      expect(response.json).toEqual({
        data: null,
        error: expect.any(String),
        meta: { code: "too_many_requests" },
      });
    }
    expect((await limited.call("GET", "/users", { token: limited.read_token })).status).toBe(200);
    expect(statuses(await burst(limited, "GET", "/health", no_token))).toEqual([200]);
    expect(statuses(await burst(limited, "GET", "/users", no_token))).toEqual([401]);
  });

  test("every response to a token has the limit and the rest when RATE_LIMIT is set", async () => {
    await using limited = await startServer({ RATE_LIMIT: "5" });
    const paths = ["/users", "/users/1", "/orders/x", "/users?limit=0", "/nope"];
    for (const path of [...paths, "/metrics"]) {
      const { headers } = await limited.call("GET", path, { token: limited.read_token });
      expect(headers.get("ratelimit-policy")).toBe('"token";q=5;w=1');
      expect(headers.get("ratelimit")).toMatch(/^"token";r=[0-5](;t=1)?$/);
    }
    const rejected = (await burst(limited, "GET", "/users")).find(({ status }) => status === 429);
    expect(rejected?.headers.get("ratelimit")).toBe('"token";r=0;t=1');
    for (const options of [no_token, { token: "garbage" }]) {
      const { headers } = await limited.call("GET", "/users", options);
      expect(headers.has("ratelimit")).toBe(false);
    }
    const { headers } = await server.call("GET", "/users");
    expect([headers.has("ratelimit"), headers.has("ratelimit-policy")]).toEqual([false, false]);
  });

  test("429 comes after 404, 405 and 403, and before other errors, when a token exceeds its rate", async () => {
    await using limited = await startServer({ RATE_LIMIT: "1" });
    const token = limited.read_token;
    await burst(limited, "GET", "/users", { token });
    expect(statuses(await burst(limited, "GET", "/nope", { token }))).toEqual([404]);
    expect(statuses(await burst(limited, "DELETE", "/users", { token }))).toEqual([405]);
    expect(statuses(await burst(limited, "POST", "/users", { body: {}, token }))).toEqual([403]);
    expect(statuses(await burst(limited, "POST", "/users", large))).toContain(429);
    expect(statuses(await burst(limited, "POST", "/users", form))).toContain(429);
    expect(statuses(await burst(limited, "POST", "/users", malformed))).toContain(429);
    expect(statuses(await burst(limited, "GET", "/orders/abc"))).toContain(429);
    expect(statuses(await burst(limited, "GET", "/orders/9"))).toContain(429);
  });

  test("there is no rate limit when RATE_LIMIT is not set", async () => {
    const responses = (
      await Promise.all([1, 2, 3, 4, 5].map(() => burst(server, "GET", "/users")))
    ).flat();
    expect(statuses(responses)).toEqual([200]);
  });
});

describe("CORS_ORIGIN", () => {
  const preflight = { "access-control-request-method": "PATCH" };
  const exposed =
    "ETag, Link, Location, Retry-After, X-Request-Id, Idempotent-Replayed, Allow, Accept-Patch, WWW-Authenticate, " +
    "RateLimit, RateLimit-Policy";
  const ask = (
    at: TestServer,
    origin: string,
    method: string,
    path: string,
    options: CallOptions,
  ) => at.call(method, path, { ...options, headers: { ...options.headers, origin } });

  test("CORS_ORIGIN allows exactly its origins to read every response", async () => {
    await using open = await startServer({
      CORS_ORIGIN: "https://a.example,http://b.example:8080",
    });
    const calls: Call[] = [
      ["GET", "/health", no_token],
      ["GET", "/users", {}],
      ["POST", "/users", { body: { email: newEmail() } }],
      ["GET", "/users", no_token],
      ["GET", "/nope", {}],
      ["DELETE", "/users", {}],
      ["POST", "/users", large],
      ["GET", "/orders/abc", {}],
    ];
    for (const call of calls) {
      for (const origin of ["https://a.example", "http://b.example:8080"]) {
        const response = await ask(open, origin, ...call);
        expect(response.headers.get("access-control-allow-origin")).toBe(origin);
        expect(response.headers.get("access-control-expose-headers")).toBe(exposed);
        expect(response.headers.get("vary")).toBe("Origin");
      }
      for (const origin of [
        "https://a.example.evil",
        "http://a.example",
        "https://a.example:1",
        "https://a.example/",
        "https://A.example",
        "https://a.example, http://b.example:8080",
        "null",
        "*",
      ]) {
        const response = await ask(open, origin, ...call);
        expect(response.headers.has("access-control-allow-origin")).toBe(false);
      }
    }
  });

  test("a preflight succeeds without a token when the origin is allowed", async () => {
    await using open = await startServer({ CORS_ORIGIN: "https://a.example" });
    const options = { ...no_token, headers: preflight };
    for (const path of ["/users", "/users/1", "/orders", "/orders/1"]) {
      const response = await ask(open, "https://a.example", "OPTIONS", path, options);
      expect([response.status, response.text]).toEqual([204, ""]);
      expect(response.headers.get("access-control-allow-origin")).toBe("https://a.example");
      const allowed = (name: string) =>
        response.headers.get(`access-control-allow-${name}`)?.split(", ").sort();
      expect(allowed("methods")).toEqual(["DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"]);
      expect(allowed("headers")).toEqual([
        ...["Authorization", "Content-Type", "Idempotency-Key"],
        ...["If-Match", "If-None-Match", "X-Request-Id"],
      ]);
      expect(Number(response.headers.get("access-control-max-age"))).toBeGreaterThan(0);
      const rejected = await ask(open, "https://evil.example", "OPTIONS", path, options);
      expect(rejected.status).toBe(401);
      expect(rejected.headers.has("access-control-allow-origin")).toBe(false);
    }
    const plain = await ask(open, "https://a.example", "OPTIONS", "/users", no_token);
    expect(plain.status).toBe(401);
  });

  test("CORS_ORIGIN=* allows every origin, but no credentials", async () => {
    await using open = await startServer({ CORS_ORIGIN: "*" });
    for (const origin of ["https://a.example", "null"]) {
      const { headers } = await ask(open, origin, "GET", "/health", {});
      expect(headers.get("access-control-allow-origin")).toBe(origin);
      expect(headers.has("access-control-allow-credentials")).toBe(false);
    }
    const { headers } = await open.call("GET", "/health");
    expect(headers.get("vary")).toBe("Origin");
    expect(headers.has("access-control-allow-origin")).toBe(false);
  });

  test("Origin has no effect when CORS_ORIGIN is not set", async () => {
    const got = await ask(server, "https://a.example", "GET", "/users?limit=1", {});
    expect([got.status, got.headers.has("access-control-allow-origin")]).toEqual([200, false]);
    const options = { headers: preflight };
    const asked = await ask(server, "https://a.example", "OPTIONS", "/users", options);
    expect([asked.status, asked.headers.has("access-control-allow-origin")]).toEqual([405, false]);
  });
});

describe("the log", () => {
  const linesOf = async (id: string) =>
    (await logs(server)).filter((line) => line["request_id"] === id);

  test.each<[number, string, ...Call]>([
    [200, "/api/v1/users/:id", "GET", `/users/${user.id}`, {}],
    [200, "/api/v1/users", "GET", `/users?email=${encodeURIComponent(user.email)}`, {}],
    [400, "/api/v1/users", "POST", "/users", { body: { secret_field: "secret-value" } }],
    [404, "/api/v1/orders/:id", "GET", "/orders/999999", {}],
    [412, "/api/v1/users/:id", "PATCH", `/users/${user.id}`, stale],
    [200, "/api/v1/health", "GET", "/health", {}],
  ])(
    "the log has one line without secrets when the response is a %i on %s",
    async (status, route, method, path, options) => {
      const id = crypto.randomUUID();
      await server.call(method, path, withId(options, id));
      const [line, ...more] = await linesOf(id);
      expect(more).toEqual([]);
      expect(line).toMatchObject({ method, route, status, request_id: id });
      expect(typeof line?.["duration_ms"]).toBe("number");
      const text = JSON.stringify(line);
      for (const secret of [
        server.write_token,
        user.email,
        encodeURIComponent(user.email),
        "secret",
      ])
        expect(text).not.toContain(secret);
    },
  );

  test("the log names the token when there is one", async () => {
    const [ids, names] = [
      ["w", "r", "none"].map((who) => `${who}-${crypto.randomUUID()}`),
      [] as unknown[],
    ];
    const tokens = [server.write_token, server.read_token, null];
    for (const [index, token] of tokens.entries()) {
      const id = ids[index] as string;
      await server.call("GET", "/users", withId({ token }, id));
      names.push((await linesOf(id))[0]?.["token"]);
    }
    expect(names[0]).toBeString();
    expect(names[1]).toBeString();
    expect(names[0]).not.toBe(names[1]);
    expect(names[2] ?? null).toBeNull();
  });

  test("log has the path without its query, at most 100 characters, when the route is unknown", async () => {
    const id = crypto.randomUUID();
    const path = `/people/${"x".repeat(200)}`;
    await server.call("GET", `${path}?secret=1`, withId({}, id));
    const [line] = await linesOf(id);
    const shown = `${`/api/v1${path}`.slice(0, 100)}...`;
    expect(line).toMatchObject({ method: "GET", status: 404, route: "/*", path: shown });
    expect(JSON.stringify(line)).not.toContain("secret");
  });
});
