import { expect, spyOn, test } from "bun:test";
import { Elysia } from "elysia";
import { createReplaceableStore } from "../../src/domain/replaceable-store.ts";
import { hashToken, newToken } from "../../src/domain/token.ts";
import { allRoutes } from "../../src/http/app.ts";
import { routesOf } from "../../src/http/routes/route.ts";
import { makeApp } from "./app.ts";

// Bun suspends a request whose response is a promise.
test("a route returns its response in the same turn when the pipeline does", () => {
  const app = new Elysia().decorate("pipeline", () => new Response()).use(allRoutes());
  for (const path of ["/api/v1/users", "/api/v1/orders/1", "/api/v1/changes"])
    expect(app.fetch(new Request(`http://localhost${path}`)), path).toBeInstanceOf(Response);
});

test("reads name their client to the store", () => {
  const clients: unknown[] = [];
  const read = (_query: unknown, client: unknown) => {
    clients.push(client);
    throw new Error("read");
  };
  const reads = { list: read, get: read };
  const store = { users: reads, orders: reads, changes: { listOf: read } };
  for (const { method, path, route } of routesOf(allRoutes())) {
    if (method !== "GET" || !/\/(users|orders)(\/:id(\/changes)?)?$/.test(path)) continue;
    const head = { status: 200, headers: {} };
    const request = new Request(`http://localhost${path}`);
    const call = { request, head, params: { id: 1 }, query: {}, token: { hash: "a" } };
    const handle = () => route.handler(call as never, { store } as never);
    expect(handle, path).toThrow("read");
  }
  expect(clients).toEqual(Array(6).fill("a"));
});

test("the response is only internal error when no response can be made", async () => {
  const lines: unknown[] = [];
  const request = () => {
    throw new Error("hunter2");
  };
  const error = (event: string, { reason }: { reason: string }) => lines.push([event, reason]);
  const app = makeApp({ enabled: () => true, request, error });
  const response = await app.handle(new Request("http://localhost/api/v1/users"));
  expect([response.status, await response.text()]).toEqual([500, "internal error"]);
  expect(lines).toEqual([["internal error", "hunter2"]]);
});

// Bun would serve no other connection until it has handled all that one has pipelined, and keep bodies until their turn.
test("a rejected request waits when its turn is over, unless it has a body of more than 1 KiB", async () => {
  let timeMs = 0;
  using _clock = spyOn(performance, "now").mockImplementation(() => {
    timeMs += 1.5;
    return timeMs;
  });
  const app = makeApp();
  const answered: number[] = [];
  const send = async (bytes: number) => {
    const headers = { "content-length": `${bytes}` };
    const request = new Request("http://localhost/api/v1/users", { method: "POST", headers });
    expect((await app.handle(request)).status).toBe(401);
    answered.push(bytes);
  };
  await Promise.all([0, 1024, 1025].map(send));
  expect(answered).toEqual([0, 1025, 1024]);
});

test("a request is not handled when its client has disconnected during a long wait for its turn", async () => {
  let timeMs = 0;
  using _clock = spyOn(performance, "now").mockImplementation(() => timeMs);
  const app = makeApp();
  const client = new AbortController();
  const init = { headers: { host: "localhost" }, signal: client.signal };
  const send = () => app.handle(new Request("http://localhost/api/v1/openapi.json", init));
  const first = send();
  timeMs += 2;
  const waiting = send();
  client.abort();
  timeMs += 100;
  expect([(await first).status, (await waiting).status]).toEqual([200, 499]);
});

const tokenOf = (hash: string) => ({ hash, scope: "write", expires_at: null, revoked_at: null });

/** @param find looks up a token. @returns a function that sends a request with a token to the app */
function makeSender(find: (hash: string) => unknown, users: object = {}) {
  const stores = createReplaceableStore();
  const tokens = { find, touch: async () => {} };
  stores.replace({ secondsBehind: () => null, tokens, users } as never);
  const app = makeApp({}, {}, stores);
  return (token: string, method: string, path: string, more: RequestInit = {}) => {
    const headers = { host: "localhost", authorization: `Bearer ${token}`, ...more.headers };
    return app.handle(new Request(`http://localhost${path}`, { method, ...more, headers }));
  };
}

/** An app whose look-ups of tokens wait until the test ends them. Only one token is valid. */
function makeLookups() {
  const valid = newToken();
  const token = tokenOf(hashToken(valid));
  const lookups = [Promise.withResolvers<void>()];
  const find = async (wanted: string) => {
    await lookups.at(-1)?.promise;
    return wanted === token.hash ? token : null;
  };
  const send = makeSender(find);
  return {
    valid,
    hold: () => lookups.push(Promise.withResolvers()),
    end: () => lookups.at(-1)?.resolve(),
    /** Sends a request with a body to a path that does not exist. @returns the status */
    async post(credentials: string, headers: Record<string, string>, body = ""): Promise<number> {
      return (await send(credentials, "POST", "/a", { headers, body })).status;
    },
  };
}

const inChunks = { "transfer-encoding": "chunked" };

test("a write is rejected before its body is read when writes of its token have half of the memory, and others go on", async () => {
  const [one, other] = [newToken(), newToken()];
  const held = Promise.withResolvers<object>();
  const request = makeSender(tokenOf, { create: () => held.promise, get: () => null });
  async function send(token: string, method: string, path: string, more: RequestInit = {}) {
    const { status, headers } = await request(token, method, `/api/v1${path}`, more);
    return `${status} ${headers.get("retry-after")}`;
  }
  const body = '{"email":"a@b.cd"}'.padEnd(2 ** 16);
  const headers = { "content-length": `${body.length}` };
  const create = (token: string) => send(token, "POST", "/users", { body, headers });
  // 128 of 64 KiB are half of the memory.
  const created = Array.from({ length: 128 }, () => create(one));
  const unread = { body: new ReadableStream(), headers: inChunks };
  for (const rejected of [send(one, "DELETE", "/users/1"), send(one, "POST", "/users", unread)])
    expect(await rejected).toBe("503 2");
  expect(await send(one, "GET", "/users/1")).toBe("404 null");
  created.push(create(other));
  held.resolve({ id: 1, version: 1, json: "{}" });
  expect(new Set(await Promise.all(created))).toEqual(new Set(["201 null"]));
  expect(await create(one)).toBe("201 null");
});

test("requests with invented tokens take no memory from a token that was valid before when all wait for look-ups", async () => {
  const { valid, hold, end, post } = makeLookups();
  end();
  expect(await post(valid, inChunks)).toBe(404);
  hold();
  const invented = () => post(newToken(), { "content-length": `${2 ** 16}` });
  const posts = Array.from({ length: 128 }, invented);
  expect(await invented()).toBe(503);
  const known = post(valid, inChunks);
  end();
  expect(await known).toBe(404);
  expect(new Set(await Promise.all(posts))).toEqual(new Set([401]));
});

test("a body in chunks counts as much as has arrived when its token is looked up", async () => {
  const { end, post } = makeLookups();
  const statuses = Array.from({ length: 1024 }, () => post(newToken(), inChunks, "{}"));
  // Half of the memory is left, which these need.
  for (let count = 0; count < 64; count += 1)
    statuses.push(post(newToken(), inChunks, " ".repeat(2 ** 16)));
  let more = 0;
  while ((await Promise.race([post(newToken(), inChunks), Bun.sleep(0)])) !== 503) more += 1;
  expect(more).toBeLessThan(100);
  end();
  expect(new Set(await Promise.all(statuses))).toEqual(new Set([401]));
});

test("the bodies of writes that wait for their turn count as those of writes in progress", async () => {
  let timeMs = 0;
  using _clock = spyOn(performance, "now").mockImplementation(() => timeMs++);
  const [send, token] = [makeSender(tokenOf), newToken()];
  // Each is invalid, and counts until that is found. 128 are half of the memory.
  const init = { headers: { "content-length": `${2 ** 16}` }, body: "".padEnd(2 ** 16) };
  const sent = Array.from({ length: 130 }, () => send(token, "POST", "/api/v1/users", init));
  const statuses = (await Promise.all(sent)).map(({ status }) => status);
  expect(new Set(statuses)).toEqual(new Set([503, 400]));
});
