import { expect, test } from "bun:test";
import { hashToken, newToken } from "../../src/domain/token.ts";
import { withStore } from "../support/open-store.ts";
import { operations } from "./exercise.ts";
import { expectError, expectUnauthorised, newUser, stored } from "./make.ts";
import { type RawRequest, sendRaw } from "./raw.ts";
import { createToken, logs, startSharedServer } from "./server.ts";

const server = await startSharedServer();
const valid = server.writeToken;
const user = await newUser(server);

const PLAIN = ["Bearer"];
const PRESENTED = ['Bearer error="invalid_token"'];

/** Requests with and without a body that would be accepted. operations.test.ts calls all operations without a token. */
const REQUESTS: [method: string, path: string, body?: Record<string, unknown>][] = [
  ["GET", "/users"],
  ["PATCH", `/users/${user.id}`, { name: "Stranger" }],
];

/** All records, to show that a rejected request changed nothing. */
const state = () => stored(server, "/users?limit=1000", "/orders?limit=1000");

const altered = `${valid.slice(0, 10)}${valid[10] === "a" ? "b" : "a"}${valid.slice(11)}`;

const revoked = await createToken(server.database, "revoked", "write");
await withStore(server.database, ({ tokens }) => tokens.revoke("revoked"));
const expired = await createToken(server.database, "expired", "write", "2020-01-01T00:00:00.000Z");

const bearer = (value: string) => ({ authorization: `Bearer ${value}` });

/** What a request has, in addition to `access_token` in its body. */
const VARIANTS: [when: string, headers?: Record<string, string>, query?: string][] = [
  ["the body has access_token"],
  ["the password of Basic is the token", { authorization: `Basic ${btoa(`x:${valid}`)}` }],
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

/** Values of `Authorization` with a token, with something else that may be one, and without any. */
test.each<[what: string, challenges: string[] | null, ...headers: string[]]>([
  ["the token", null, "Bearer abc", "bearer abc", "BEARER abc", "Bearer abc  "],
  ["an invalid token", PRESENTED, "Bearer a-b_c.d~e+f/g==", 'Bearer "abc"'],
  ["no token", PLAIN, "", "abc", "Bearer", "Bearer ", "Bearerabc", "Bearer\tabc", "Bearer=abc"],
  ["no token", PLAIN, "Bearer abc def", "Bearer abc,def", 'Bearer abc realm="x"', "Basic abc"],
])("a request has %s", async (_what, challenges, ...all) => {
  const before = await state();
  for (const header of all)
    for (const [method, path, body] of REQUESTS) {
      // Both are valid.
      const headers = { authorization: header.replaceAll(/abc|def/g, valid) };
      // With an empty body, nothing changes if the token is accepted.
      const sent = body && challenges === null ? {} : body;
      const response = await server.call(method, path, { token: null, headers, body: sent });
      if (challenges === null)
        expect([method, header, response.status]).toEqual([method, header, 200]);
      else expectUnauthorised(response, challenges);
    }
  expect(await state()).toEqual(before);
});

const get = (target: string, request: RawRequest = {}) => sendRaw(server, "GET", target, request);

test.each([
  ..."http://x/api/v1/users http://x/api/v1/health/../users //x/api/v1/health".split(" "),
  ..."//api/v1/users //api/v1/health /api/v1/health/../users /api/v1/health%00".split(" "),
  ..."/api/v1/health%2f..%2fusers /api/v1/health/..%2fusers /api/v1/health/".split(" "),
  ..."/api/v1/health;x /api/v1/%68ealth /api/v1/HEALTH /api/v2/health /health".split(" "),
  ..."/api/v1/healthz /api/v1/users?/api/v1/health /api/v1/users#/api/v1/health".split(" "),
])("%s returns 401 when there is no token", async (target) => {
  expectUnauthorised(await get(target), PLAIN);
});

test("Authorization is rejected when it is sent twice and one value is invalid", async () => {
  const twice = ["Authorization: Bearer garbage", `Authorization: Bearer ${valid}`];
  for (const headers of [twice, twice.toReversed()])
    expectUnauthorised(await get("/api/v1/users", { headers }), [...PLAIN, ...PRESENTED]);
});

test("the log has the reason of a 401 and the name of a token that is known, and never a token", async () => {
  const tokens = [valid, server.readToken, revoked, expired, newToken()];
  const warned = newToken();
  const soon = new Date(Date.now() + 1_000_000).toISOString();
  const fields = { hash: hashToken(warned), name: "ending", scope: "read", expires_at: soon };
  const now = () => new Date(0);
  await withStore(server.database, (store) => store.tokens.create(fields), { now });
  const id = crypto.randomUUID();
  const headers = { "x-request-id": id };
  for (const token of [null, expired, revoked, newToken(), "x", warned])
    await server.call("GET", "/users", { token, headers });
  for (const token of tokens)
    for (const query of ["", `?access_token=${token}`, `/${token}`])
      await server.call("GET", `/users${query}`, { token });
  await server.call("GET", "/users", { token: null, headers: { cookie: `t=${valid}` } });
  await server.call("POST", "/users", { body: { access_token: valid, [valid]: 1 } });
  const lines = await logs(server);
  const own = lines.filter((line) => line["request_id"] === id);
  expect(own.map(({ reason, token }) => [reason, token].join(" "))).toEqual([
    ...["missing ", "expired expired", "revoked revoked", "unknown ", "malformed ", " ending"],
  ]);
  const warning = { level: "warn", event: "token expires soon", token: "ending", expires_at: soon };
  expect(lines).toContainEqual(expect.objectContaining(warning));
  for (const token of tokens) expect(JSON.stringify(lines)).not.toContain(token.slice(4, 34));
});

/** @returns the scopes that an operation needs; `null` if it is public */
function neededScopes(method: string, path: string): string[] | null {
  if (/^\/(?:health|openapi)/.test(path)) return null;
  const isWrite = !["GET", "HEAD"].includes(method);
  return ["users", "orders"]
    .filter((noun) => path.startsWith(`/${noun}`) || path === "/changes")
    .map((noun) => `${noun}:${isWrite ? "write" : "read"}`);
}

/** @returns what a token of these scopes may do: without a noun they stand for both, and write includes read */
function grantedBy(scope: string): string[] {
  const words = scope
    .split(",")
    .flatMap((word) => (word.includes(":") ? word : [`users:${word}`, `orders:${word}`]));
  return words.flatMap((word) => [word, word.replace("write", "read")]);
}

test.each([
  ...["read", "write", "users:read", "users:write", "orders:read", "orders:write"],
  ...["orders:write,users:read", "read,users:write"],
])(
  "a token of scope %s may do what it has the scopes for, and otherwise gets a 403 that names those it lacks",
  async (scope) => {
    const granted = grantedBy(scope);
    const token = await createToken(server.database, `scope ${scope}`, scope);
    const before = await state();
    for (const { operation, method, path } of operations()) {
      const needed = neededScopes(method, path) ?? [];
      const missing = needed.filter((each) => !granted.includes(each));
      // No record has the id, and the body is not complete: nothing changes if the token is accepted.
      const [at, body] = [path.replace("1", "0"), method === "GET" ? undefined : {}];
      const response = await server.call(method, at, { token, body });
      const { status, headers } = response;
      if (missing.length === 0) expect([200, 400, 404], operation).toContain(status);
      else {
        expectError(response, 403, `this token lacks the scope ${missing.join(" and ")}`);
        const challenge = `Bearer error="insufficient_scope", scope="${missing.join(" ")}"`;
        expect(headers.get("www-authenticate")).toBe(challenge);
      }
      if (method !== "GET") continue;
      expect((await server.call("HEAD", at, { token })).status, operation).toBe(status);
    }
    expect(await state()).toEqual(before);
  },
);

test("the document has the scopes of each operation", () => {
  for (const { operation, method, path, scopes } of operations())
    expect([operation, scopes]).toEqual([operation, neededScopes(method, path)]);
});
