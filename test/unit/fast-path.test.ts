import { expect, test } from "bun:test";
import { readConfig } from "../../src/config.ts";
import { AppError } from "../../src/error.ts";
import { createApp } from "../../src/http/app.ts";
import type { VerifyTokenSync } from "../../src/http/auth.ts";
import { createDrain } from "../../src/http/drain.ts";
import { fastPath } from "../../src/http/fast-path.ts";
import type { HandledRequest } from "../../src/http/lifecycle.ts";
import { createMetrics } from "../../src/http/metrics.ts";
import { createLog } from "../../src/log.ts";
import { openSqlite } from "../../src/sqlite/backend.ts";
import type { Store } from "../../src/store.ts";
import { hashToken, newToken, type Token } from "../../src/token.ts";
import { makeDirectory } from "../directory.ts";

const token = { hash: "hash", name: "ci" } as Token;
const user = { id: 7, version: 3 };

interface World {
  readonly identify?: VerifyTokenSync;
  readonly take?: () => boolean;
  readonly get?: () => unknown;
}

/** @returns what handled the request, and the result */
async function answerOf(url: string, init: RequestInit = {}, world: World = {}) {
  const { identify = () => token, take: rateLimiter = () => true, get = () => user } = world;
  let finished: HandledRequest | null = null;
  let output = "";
  const log = createLog({
    level: "info",
    format: "json",
    now: () => new Date(),
    write: (line) => {
      output += line;
    },
  });
  const respond = (exchange: HandledRequest) => {
    finished = exchange;
    return new Response("past");
  };
  const store = { sync_reads: { user: get, order: get } } as unknown as Store;
  const request = new Request(url, { headers: { authorization: "Bearer ab" }, ...init });
  const handle = fastPath({ store, verifyTokenSync: () => identify, rateLimiter, respond, log });
  const response = await handle(() => new Response("Elysia"), request)(request);
  return { by: await response.text(), output, ...(finished ?? {}) } as Partial<HandledRequest> & {
    by: string;
    output: string;
  };
}

const site = "http://127.0.0.1:3000";

test("`fastPath` handles a request over TLS", async () => {
  expect((await answerOf("https://example.com/api/v1/users/7")).by).toBe("past");
});

for (const path of ["/api/v1/users/7", "/api/v1/orders/7", "/api/v1/users/999999999999999"]) {
  test(`\`fastPath\` handles the request when the path is ${path}`, async () => {
    const { by, route, set, body } = await answerOf(site + path);
    expect(by).toBe("past");
    expect(route).toBe(path.replace(/\d+$/, ":id"));
    expect(set?.headers["etag"]).toBe('"3"');
    expect(body).toEqual({ data: user, error: null });
  });
}

for (const path of [
  "/api/v1/users",
  "/api/v1/users/",
  "/api/v1/users/7/",
  "/api/v1/users/7?",
  "/api/v1/users/7?a=1",
  "/api/v1/users/07",
  "/api/v1/users/0",
  "/api/v1/users/-7",
  "/api/v1/users/7a",
  "/api/v1/users/%37",
  "/api/v1/users/1234567890123456",
  "/api/v1/tokens/7",
  "/api/v1/health",
  "/api/v2/users/7",
  "/users/7",
  "/x/api/v1/users/7",
]) {
  test(`\`fastPath\` leaves the request to Elysia when the path is ${path}`, async () => {
    expect((await answerOf(site + path)).by).toBe("Elysia");
  });
}

for (const method of ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]) {
  test(`\`fastPath\` leaves the request to Elysia when the method is ${method}`, async () => {
    expect((await answerOf(`${site}/api/v1/users/7`, { method })).by).toBe("Elysia");
  });
}

const plain = `${site}/api/v1/users/7`;

test("`fastPath` reads the credentials from the header", async () => {
  const given: unknown[] = [];
  const identify = (credentials: string | undefined) => {
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
    await answerOf(plain, { headers: { authorization } }, { identify });
  }
  await answerOf(plain, { headers: {} }, { identify });
  expect(given).toEqual(["ab", "ab", undefined, undefined, undefined, undefined]);
});

test("`fastPath` returns 401 without reading the record when the token is invalid", async () => {
  let asked = 0;
  const identify = () => {
    asked += 1;
    throw new AppError("invalid_token", "unauthorised");
  };
  const get = () => expect.unreachable();
  const { by, set, body, token: found } = await answerOf(plain, {}, { identify, get });
  expect([by, set?.status, body, found]).toEqual(["past", 401, "unauthorised", null]);
  expect(asked).toBe(1);
});

test("`fastPath` returns 429 without reading the record when the rate limit is exceeded", async () => {
  const get = () => expect.unreachable();
  let taken = 0;
  const take = () => {
    taken += 1;
    return false;
  };
  const { set, token: found } = await answerOf(plain, {}, { take, get });
  expect([set?.status, found]).toEqual([429, token]);
  expect(taken).toBe(1);
});

test("`fastPath` returns the 404 of the routes when the record does not exist", async () => {
  const get = () => null;
  const of_user = await answerOf(plain, {}, { get });
  expect([of_user.set?.status, of_user.body]).toEqual([
    404,
    { data: null, error: "user not found", meta: { code: "not_found" } },
  ]);
  const of_order = await answerOf(`${site}/api/v1/orders/7`, {}, { get });
  expect([of_order.set?.status, of_order.body]).toEqual([404, "order not found"]);
  expect(of_order.output).toBe("");
});

for (const failing of ["identify", "get"]) {
  const failWith = (error: Error) => ({
    [failing]() {
      throw error;
    },
  });

  test(`\`fastPath\` logs an error and returns 500 when \`${failing}\` fails`, async () => {
    const world = failWith(new Error("disk I/O error"));
    const { set, body, output, start } = await answerOf(plain, {}, world);
    expect([set?.status, body]).toEqual([500, "internal error"]);
    expect(output).toContain("disk I/O error");
    expect(output).toContain(`${start?.request_id}`);
  });

  test(`\`fastPath\` is a 503 when \`${failing}\` says that the database is away`, async () => {
    const world = failWith(new AppError("unavailable", "the database does not respond"));
    const { by, set } = await answerOf(plain, {}, world);
    expect([by, set?.status]).toEqual(["past", 503]);
    expect(set?.headers["retry-after"]).toBe("1");
  });
}

function makeApp(store: Store, api_token: string) {
  return createApp({
    store,
    config: readConfig({ API_TOKEN: api_token }, {}),
    log: createLog({ level: "silent", format: "json", now: () => new Date(), write() {} }),
    now: () => new Date(),
    metrics: createMetrics("1.2.3"),
    drain: createDrain(),
    version: "0",
  });
}

for (const [what, sync_reads, past] of [
  ["has synchronous reads", { user: () => user }, 1],
  ["is asynchronous", null, 0],
] as const) {
  test(`\`createApp\` handles ${past} of two requests on the fast path when its store ${what}`, async () => {
    let through = 0;
    const api_token = newToken();
    const store = { users: { get: async () => user }, sync_reads } as unknown as Store;
    const app = makeApp(store, api_token).onRequest(() => {
      through += 1;
    });
    const init = { headers: { authorization: `Bearer ${api_token}` } };
    for (const url of [plain, `${plain}?`]) {
      expect((await app.handle(new Request(url, init))).status).toBe(200);
    }
    expect(through).toBe(2 - past);
  });
}

test("`createApp` responds synchronously to a GET of one record when the store is SQLite", async () => {
  using directory = makeDirectory();
  const now = () => new Date();
  const options = {
    max_pending_writes: 10,
    max_unsent_bytes: 0,
    exclusive: true,
    create: true,
    now,
  };
  const store = await openSqlite({ database_url: directory.at("a.db"), ...options });
  await using _ = { [Symbol.asyncDispose]: () => store.close() };
  const [api_token, stored, revoked, unknown] = Array.from({ length: 4 }, newToken);
  for (const [name, token] of [
    ["stored", stored],
    ["revoked", revoked],
  ] as const) {
    const fields = { name, scope: "read", expires_at: null } as const;
    await store.tokens.create({ hash: hashToken(token!), ...fields });
  }
  await store.tokens.revoke("revoked");
  const items = [{ sku: "tea-01", quantity: 2, unit_price: 1999 }];
  await store.users.create({ email: "ann@example.com", name: null, metadata: {} }, null);
  await store.orders.place({ user_id: 1, currency: "EUR", items, total: 3998, metadata: {} }, null);
  const app = makeApp(store, api_token!);
  for (const [token, found, missing] of [
    [api_token, 200, 404],
    [stored, 200, 404],
    [revoked, 401, 401],
    [unknown, 401, 401],
    ["none", 401, 401],
  ] as const) {
    for (const [path, status] of [
      ["users/1", found],
      ["orders/1", found],
      ["users/2", missing],
      ["orders/2", missing],
    ] as const) {
      const headers = { authorization: `Bearer ${token}` };
      const response: unknown = app.fetch(new Request(`${site}/api/v1/${path}`, { headers }));
      expect(response).toBeInstanceOf(Response);
      expect((response as Response).status).toBe(status);
      const { data } = (await (response as Response).json().catch(() => ({ data: null }))) as any;
      expect(data?.id).toBe(status === 200 ? 1 : undefined);
    }
  }
});
