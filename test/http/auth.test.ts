import { describe, expect, test } from "bun:test";
import { hashToken, newToken } from "../../src/domain/token.ts";
import { allRoutes } from "../../src/http/app.ts";
import { isPublic, type RouteEntry } from "../../src/http/routes/route.ts";
import { withStore } from "../support/open-store.ts";
import { expectUnauthorised, newUser, stored } from "./make.ts";
import { type RawRequest, sendRaw } from "./raw.ts";
import {
  type CallOptions,
  createToken,
  logs,
  sendRequest,
  startServer,
  startSharedServer,
} from "./server.ts";

const server = await startSharedServer();
const valid = server.writeToken;
const user = await newUser(server);

const PLAIN = ["Bearer"];
const PRESENTED = ['Bearer error="invalid_token"'];

/** Requests with and without a body that would be accepted. All routes have the same checks: see the first test. */
const REQUESTS: [method: string, path: string, body?: Record<string, unknown>][] = [
  ["GET", "/users"],
  ["PATCH", `/users/${user.id}`, { name: "Stranger" }],
];

/** All records, to show that a rejected request changed nothing. */
const state = () => stored(server, "/users?limit=1000", "/orders?limit=1000");

const basic = (text: string) => `Basic ${Buffer.from(text).toString("base64")}`;
const altered = `${valid.slice(0, 10)}${valid[10] === "a" ? "b" : "a"}${valid.slice(11)}`;

const revoked = await createToken(server.database, "revoked", "write");
await withStore(server.database, ({ tokens }) => tokens.revoke("revoked"));
const expired = await createToken(server.database, "expired", "write", "2020-01-01T00:00:00.000Z");

const bearer = (value: string) => ({ authorization: `Bearer ${value}` });

/** What a request has, in addition to `access_token` in its body. */
const VARIANTS: [when: string, headers?: Record<string, string>, query?: string][] = [
  ["the body has access_token"],
  ["the password of Basic is the token", { authorization: basic(`x:${valid}`) }],
  ["the query has access_token", {}, `?access_token=${valid}`],
  ["the query has a nameless token", {}, `?=${valid}`],
  ["the query has a Bearer header", {}, `?authorization=Bearer%20${valid}`],
  ["a cookie has the token", { cookie: `access_token=${valid}; authorization=Bearer ${valid}` }],
  ["other headers have it", { "proxy-authorization": `Bearer ${valid}`, "x-access-token": valid }],
  ["the token is 4,000 characters", bearer("x".repeat(4000))],
  ["the token was never issued", bearer(newToken())],
  ["a character is altered", bearer(altered)],
  ["an escaped NUL is appended", bearer(`${valid}%00`)],
  ["the token was revoked", bearer(revoked)],
  ["the token has expired", bearer(expired)],
];

test("every route returns 401 without a token, unless it is public", async () => {
  const routes: readonly RouteEntry[] = allRoutes().routes;
  for (const route of routes) {
    const path = route.path.replace("/api/v1", "").replace(":id", "1");
    const response = await server.call(route.method, path, { token: null });
    if (isPublic(route)) expect(response.status, path).not.toBe(401);
    else expectUnauthorised(response, PLAIN);
  }
});

test.each(VARIANTS)(
  "a request returns 401 and changes nothing when %s",
  async (_when, headers = {}, query = "") => {
    const before = await state();
    const isPresented = headers["authorization"]?.startsWith("Bearer ");
    for (const [method, path, body] of REQUESTS) {
      const options = { token: null, headers, body: body && { ...body, access_token: valid } };
      const response = await server.call(method, path + query, options);
      expectUnauthorised(response, isPresented ? PRESENTED : PLAIN);
    }
    expect(await state()).toEqual(before);
  },
);

/** Values of `Authorization`, empty for none, and the token in them, `null` for none. */
const authorizationHeaders: [header: string, token: string | null][] = [
  ["Bearer abc", "abc"],
  ["bearer abc", "abc"],
  ["BEARER abc", "abc"],
  ["Bearer abc  ", "abc"],
  ["Bearer a-b_c.d~e+f/g==", "a-b_c.d~e+f/g=="],
  ['Bearer "abc"', '"abc"'],
  ["", null],
  ["abc", null],
  ["Bearer", null],
  ["Bearer ", null],
  ["Bearerabc", null],
  ["Bearer\tabc", null],
  ["Bearer=abc", null],
  ["Bearer abc def", null],
  ["Bearer abc,def", null],
  ['Bearer abc realm="x"', null],
  ["Basic abc", null],
  ["Token abc", null],
];

test.each(authorizationHeaders)(
  "a request takes the token, or none, from %s",
  async (header, token) => {
    // Both are valid.
    const authorization = header.replaceAll(/abc|def/g, valid);
    const before = await state();
    for (const [method, path, body] of REQUESTS) {
      // With an empty body, nothing changes if the token is accepted.
      const accepted = token === "abc";
      const sent = body && accepted ? {} : body;
      const options = { token: null, headers: { authorization }, body: sent };
      const response = await server.call(method, path, options);
      if (accepted) expect([method, response.status]).toEqual([method, 200]);
      else expectUnauthorised(response, token === null ? PLAIN : PRESENTED);
    }
    expect(await state()).toEqual(before);
  },
);

const json = { "content-type": "application/json" };
const oneUser = `/users/${user.id}`;
/** Unknown paths and wrong methods are in requests.test.ts. */
const HOSTILE: [has: string, request: string, options?: CallOptions][] = [
  ["an unknown path with a body", "POST /nope", { body: { a: 1 } }],
  ["OPTIONS", "OPTIONS /users"],
  ["an unknown order", "GET /orders/999999"],
  ["a bad query", "GET /users?limit=0&nope=1"],
  ["a malformed % in the path", "GET /users/%zz"],
  ["a malformed body", "POST /users", { raw: '{"email":', headers: json }],
  ["a body far over the limit", "POST /orders", { raw: "x".repeat(3_000_000), headers: json }],
  ["text", `PATCH ${oneUser}`, { raw: "a", headers: { "content-type": "text/plain" } }],
  ["a stale If-Match", `PATCH ${oneUser}`, { body: {}, headers: { "if-match": '"99"' } }],
  ["a bad key", "POST /users", { body: {}, headers: { "idempotency-key": "a b" } }],
];

for (const [has, request, options = {}] of HOSTILE) {
  test(`a request without a valid token gets only a 401 when it has ${has}`, async () => {
    const [method] = request.split(" ");
    const without = await sendRequest(server, request, { ...options, token: null });
    expectUnauthorised(without, PLAIN, method);
    const headers = { authorization: "Bearer garbage", ...options.headers };
    const guessed = await sendRequest(server, request, { ...options, headers });
    expectUnauthorised(guessed, PRESENTED, method);
  });
}

describe("raw requests", () => {
  const get = (target: string, request: RawRequest = {}) => sendRaw(server, "GET", target, request);

  const targets = [
    "http://x/api/v1/users http://x/api/v1/health/../users",
    "//api/v1/users //api/v1/health //x/api/v1/health /api/v1/health/../users",
    "/api/v1/health%2f..%2fusers /api/v1/health/..%2fusers /api/v1/health/ /api/v1/health;x",
    "/api/v1/health%00 /api/v1/%68ealth /api/v1/HEALTH /api/v2/health /health /api/v1/healthz",
    "/api/v1/users?/api/v1/health /api/v1/users#/api/v1/health",
  ];
  test.each(targets.join(" ").split(" "))(
    "%s returns 401 when there is no token",
    async (target) => {
      expectUnauthorised(await get(target), PLAIN);
    },
  );

  test("http://x?/api/v1/users redirects as / does when there is no token", async () => {
    const { status, headers, text } = await get("http://x?/api/v1/users");
    expect([status, headers.get("location"), text]).toEqual([302, "/api/v1/docs", ""]);
  });

  test("Authorization is rejected when it is sent twice and one value is invalid", async () => {
    const twice = ["Authorization: Bearer garbage", `Authorization: Bearer ${valid}`];
    for (const headers of [twice, twice.toReversed()]) {
      expectUnauthorised(await get("/api/v1/users", { headers }), [...PLAIN, ...PRESENTED]);
    }
  });
});

test("the log never contains a token, whether it is accepted, rejected or in the wrong place", async () => {
  const never = newToken();
  for (const token of [valid, server.readToken, revoked, expired, never])
    for (const query of ["", `?access_token=${token}`, `/${token}`])
      await server.call("GET", `/users${query}`, { token });
  await server.call("GET", "/users", { token: null, headers: { cookie: `t=${valid}` } });
  await server.call("POST", "/users", { body: { access_token: valid, [valid]: 1 } });
  const written = JSON.stringify(await logs(server));
  expect(written).toContain("/api/v1/users");
  for (const token of [valid, server.readToken, revoked, expired, never])
    expect(written).not.toContain(token.slice(4, 34));
});

test("the log has the reason of a 401, and the name of a token that is known", async () => {
  await using other = await startServer();
  const soon = new Date(Date.now() + 1_000_000).toISOString();
  const past = await createToken(other.database, "past", "read", "2026-01-01T00:00:00.000Z");
  const gone = await createToken(other.database, "gone", "read");
  await withStore(other.database, ({ tokens }) => tokens.revoke("gone"));
  const ending = newToken();
  const fields = { hash: hashToken(ending), name: "ending", scope: "read", expires_at: soon };
  await withStore(other.database, ({ tokens }) => tokens.create(fields), {
    now: () => new Date(0),
  });
  for (const token of [ending, null, past, gone, newToken(), "x"])
    await other.call("GET", "/users", { token });
  const lines = await logs(other);
  const denied = lines.filter(({ status }) => status === 401);
  expect(denied.map(({ reason, token }) => [reason, token].join(" "))).toEqual([
    "missing ",
    "expired past",
    "revoked gone",
    "unknown ",
    "malformed ",
  ]);
  const warning = { level: "warn", event: "token expires soon", token: "ending", expires_at: soon };
  expect(lines).toContainEqual(expect.objectContaining(warning));
});
