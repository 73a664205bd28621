import { expect, test } from "bun:test";
import { readConfig } from "../../src/config.ts";
import { AppError } from "../../src/error.ts";
import { createApp } from "../../src/http/app.ts";
import type { VerifyTokenSync } from "../../src/http/auth.ts";
import { createDrain } from "../../src/http/drain.ts";
import { type FastPathOptions, fastPath } from "../../src/http/fast-path.ts";
import type { HandledRequest } from "../../src/http/lifecycle.ts";
import { createMetrics } from "../../src/http/metrics.ts";
import { listen } from "../../src/http/server.ts";
import { createLog } from "../../src/log.ts";
import type { Store } from "../../src/store.ts";
import { newToken, type Token } from "../../src/token.ts";

const token = { hash: "hash", name: "ci" } as Token;
const user = { id: 7, version: 3 };
const user_text = { ...user, json: JSON.stringify(user) };

interface Dependencies {
  readonly verify?: VerifyTokenSync;
  readonly allow?: () => boolean;
  readonly get?: (id?: number) => unknown;
}

/** Calls the native route of this path, as Bun does. */
function callRoute(routes: ReturnType<typeof fastPath>, path: string, init: RequestInit) {
  if (init.method === "POST") {
    return routes[path]!.POST!(Object.assign(new Request(site + path, init), { params: {} }));
  }
  const [, resource = "", id = ""] = /^(.*)\/([^?]*)/.exec(path) ?? [];
  return routes[`${resource}/:id`]!.GET!(
    Object.assign(new Request(site + path, init), { params: { id } }),
  );
}

/** @returns the result of the request. @param is_sync whether the store has synchronous reads */
async function handle(
  path: string,
  init: RequestInit,
  dependencies: Dependencies,
  is_sync: boolean,
) {
  const { verify = () => token, allow = () => true, get = () => user_text } = dependencies;
  const rateLimiter = { allow, headers: () => ({}) };
  const handled: HandledRequest[] = [];
  let output = "";
  const log = createLog({
    level: "info",
    format: "json",
    now: () => new Date(),
    write: (line) => {
      output += line;
    },
  });
  const respond = (request: HandledRequest) => {
    handled.push(request);
    return new Response();
  };
  const asyncGet = async (id: number) => get(id);
  const sync_reads = is_sync ? { user: get, order: get } : null;
  const store = { sync_reads, users: { get: asyncGet }, orders: { get: asyncGet } };
  const routes = fastPath({
    store: store as unknown as FastPathOptions["store"],
    verifyToken: async (credentials, request) => verify(credentials, request),
    verifyTokenSync: is_sync ? verify : null,
    readBody: () => expect.unreachable(),
    rateLimiter,
    respond,
    log,
  });
  await callRoute(routes, path, { headers: { authorization: "Bearer ab" }, ...init });
  expect(handled).toHaveLength(1);
  return { output, ...handled[0]! };
}

/** @returns the result of the request, which is the same with and without synchronous reads */
async function resultOf(path: string, init: RequestInit = {}, dependencies: Dependencies = {}) {
  const result = await handle(path, init, dependencies, true);
  const { route, token: found, set, body } = await handle(path, init, dependencies, false);
  expect({ route, token: found, set, body }).toEqual({
    route: result.route,
    token: result.token,
    set: result.set,
    body: result.body,
  });
  return result;
}

const site = "http://127.0.0.1:3000";
const plain = "/api/v1/users/7";

for (const path of ["/api/v1/users/7", "/api/v1/orders/7", "/api/v1/orders/+07"]) {
  test(`\`fastPath\` returns the record when the path is ${path}`, async () => {
    const ids: unknown[] = [];
    const get = (id?: unknown) => {
      ids.push(id);
      return user_text;
    };
    const { route, set, body } = await resultOf(path, {}, { get });
    // Once by each store.
    expect(ids).toEqual([7, 7]);
    expect(route).toBe(path.replace(/[+\d]+$/, ":id"));
    expect(set.headers["etag"]).toBe('"3"');
    expect(body).toEqual({ data: user, error: null });
  });
}

for (const path of ["/api/v1/users/07", "/api/v1/orders/7a", `${plain}?a=1`]) {
  test(`\`fastPath\` returns 400 without reading the record when the path is ${path}`, async () => {
    const get = () => expect.unreachable();
    expect((await resultOf(path, {}, { get })).set.status).toBe(400);
  });
}

test("`fastPath` reads the credentials from the header", async () => {
  const given: unknown[] = [];
  const verify = (credentials: string | undefined) => {
    given.push(credentials);
    return token;
  };
  for (const authorization of [
    "Bearer ab",
    "bearer  ab ",
    "Basic ab",
    "ab",
    "Bearer a, Bearer b",
  ]) {
    await resultOf(plain, { headers: { authorization } }, { verify });
  }
  await resultOf(plain, { headers: {} }, { verify });
  const expected = ["ab", "ab", undefined, undefined, undefined, undefined];
  expect(given).toEqual(expected.flatMap((credentials) => [credentials, credentials]));
});

test("`fastPath` returns 401 without reading the record when the token is invalid", async () => {
  let verified = 0;
  const verify = () => {
    verified += 1;
    throw new AppError("invalid_token", "unauthorised");
  };
  const get = () => expect.unreachable();
  const { set, body, token: found } = await resultOf(plain, {}, { verify, get });
  expect([set.status, body, found]).toEqual([401, "unauthorised", null]);
  // Once by each store.
  expect(verified).toBe(2);
});

test("`fastPath` returns 429 without reading the record when the rate limit is exceeded", async () => {
  const get = () => expect.unreachable();
  let counted = 0;
  const allow = () => {
    counted += 1;
    return false;
  };
  const { set, token: found } = await resultOf(plain, {}, { allow, get });
  expect([set.status, found]).toEqual([429, token]);
  // Once by each store.
  expect(counted).toBe(2);
});

for (const [what, status, dependencies] of [
  [
    "is invalid",
    401,
    {
      verify() {
        throw new AppError("invalid_token", "unauthorised");
      },
    },
  ],
  ["may only read", 403, { verify: () => ({ ...token, scope: "read" }) }],
  ["exceeds the rate limit", 429, { allow: () => false }],
] as [string, number, Dependencies][]) {
  test(`\`fastPath\` does not read the body of a POST when the token ${what}`, async () => {
    for (const path of ["/api/v1/users", "/api/v1/orders"]) {
      const { set } = await resultOf(path, { method: "POST", body: "{}" }, dependencies);
      expect(set.status).toBe(status);
    }
  });
}

test("`fastPath` returns the 404 of the routes when the record does not exist", async () => {
  const get = () => null;
  const of_user = await resultOf(plain, {}, { get });
  expect([of_user.set.status, of_user.body]).toEqual([
    404,
    { data: null, error: "user not found", meta: { code: "not_found" } },
  ]);
  const of_order = await resultOf("/api/v1/orders/7", {}, { get });
  expect([of_order.set.status, of_order.body]).toEqual([404, "order not found"]);
  expect(of_order.output).toBe("");
});

for (const failing of ["verify", "get"]) {
  const failWith = (error: Error) => ({
    [failing]() {
      throw error;
    },
  });

  test(`\`fastPath\` logs an error and returns 500 when \`${failing}\` fails`, async () => {
    const dependencies = failWith(new Error("disk I/O error"));
    const { set, body, output, start } = await resultOf(plain, {}, dependencies);
    expect([set.status, body]).toEqual([500, "internal error"]);
    expect(output).toContain("disk I/O error");
    expect(output).toContain(`${start.request_id}`);
  });

  test(`\`fastPath\` returns 503 when \`${failing}\` finds that the database does not respond`, async () => {
    const dependencies = failWith(new AppError("unavailable", "the database does not respond"));
    const { set } = await resultOf(plain, {}, dependencies);
    expect(set.status).toBe(503);
    expect(set.headers["retry-after"]).toBe("1");
  });
}

for (const [what, sync_reads] of [
  ["has synchronous reads", { user: () => user_text }],
  ["has none", null],
] as const) {
  test(`\`createApp\` handles GET of one record and POST without Elysia when its store ${what}`, async () => {
    const api_token = newToken();
    const create = async () => ({ record: user_text, replayed: false });
    const store = {
      users: { get: async () => user_text, create },
      orders: { place: create },
      sync_reads,
    } as unknown as Store;
    const config = readConfig({ API_TOKEN: api_token, PORT: "0" }, {});
    const log = createLog({ level: "silent", format: "json", now: () => new Date(), write() {} });
    const metrics = createMetrics("1.2.3");
    const drain = createDrain();
    const now = () => new Date();
    const app = createApp({ store, config, log, now, metrics, drain, version: "0" });
    let requests = 0;
    app.onRequest(() => {
      requests += 1;
    });
    const listener = await listen(app, config, log);
    await using _ = { [Symbol.asyncDispose]: () => listener.stop(0) };
    const headers = { authorization: `Bearer ${api_token}` };
    const response = await fetch(listener.url + plain, { headers });
    expect(await response.json()).toEqual({ data: user, error: null });
    const items = [{ sku: "tea-01", quantity: 1, unit_price: 100 }];
    for (const [list, input] of [
      ["users", { email: "ann@example.com" }],
      ["orders", { user_id: 7, currency: "EUR", items }],
    ] as const) {
      const init = { method: "POST", headers, body: JSON.stringify(input) };
      const created = await fetch(`${listener.url}/api/v1/${list}`, init);
      expect([created.status, await created.json()]).toEqual([201, { data: user, error: null }]);
    }
    expect(requests).toBe(0);
  });
}
