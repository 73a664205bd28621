import { expect, test } from "bun:test";
import { newToken } from "../../../src/token.ts";
import { againstCitus, againstPostgres, holdTable, holdWrites } from "../backend.ts";
import { countOf, expectError, metricOf, newEmail, newUser } from "../make.ts";
import { chunked, rawRequest } from "../raw.ts";
import { logs, startServer, type TestResponse, type TestServer } from "../server.ts";

function expectBusy(response: TestResponse, message: string): void {
  expectError(response, 503, message);
  expect(response.headers.get("retry-after")).toBe("1");
}

/**
 * Polls until so many writes are queued, or the test times out. Call it before writes are held, too: the metrics write,
 * and reuse the result for 5 s.
 */
async function untilPending(server: TestServer, count: number): Promise<void> {
  for (;;) {
    if ((await metricOf(server, "user_api_pending_writes")) >= count) return;
    await Bun.sleep(10);
  }
}

/** Starts a server with a second token that may write, and sends it writes. */
async function startWithTokens(settings: Record<string, string> = {}) {
  const other = newToken();
  const server = await startServer({ ...settings, API_TOKEN: other });
  return Object.assign(server, {
    other,
    /** @param bytes the length of the body, at least */
    post(token = server.writeToken, bytes = 0): Promise<TestResponse> {
      const headers = { "content-type": "application/json" };
      const raw = JSON.stringify({ email: newEmail() }).padEnd(bytes);
      return server.call("POST", "/users", { raw, headers, token });
    },
    patch(id: number, token = server.writeToken): Promise<TestResponse> {
      return server.call("PATCH", `/users/${id}`, { body: { name: crypto.randomUUID() }, token });
    },
  });
}

async function statusesOf(responses: readonly Promise<TestResponse>[]): Promise<number[]> {
  return (await Promise.all(responses)).map(({ status }) => status).sort();
}

/** @returns the response that arrives as the nth */
function nthOf(n: number, responses: readonly Promise<TestResponse>[]): Promise<TestResponse> {
  const { promise, resolve } = Promise.withResolvers<TestResponse>();
  let count = 0;
  for (const response of responses) {
    void response.then((arrived) => {
      count += 1;
      if (count === n) resolve(arrived);
    });
  }
  return promise;
}

const times = <Item>(length: number, make: () => Item) => Array.from({ length }, make);

test("a write returns 503 with Retry-After when its token has half of the queue, while others succeed", async () => {
  await using server = await startWithTokens({ MAX_PENDING_WRITES: "4" });
  const user = await newUser(server);
  // Another process writes, so that writes of the server wait.
  const held = await holdWrites(server.database);

  const posts = times(12, () => server.post());
  expectBusy(await nthOf(10, posts), "too many writes are in progress");
  const remove = await server.call("DELETE", `/users/${user.id}`);
  expectBusy(remove, "too many writes are in progress");
  const ofOther = server.post(server.other);
  expect((await server.call("GET", `/users/${user.id}`)).status).toBe(200);
  expect(await countOf(server, "/users")).toBe(1);

  await held[Symbol.asyncDispose]();
  expect((await ofOther).status).toBe(201);
  expect(await statusesOf(posts)).toEqual([201, 201, ...times(10, () => 503)]);
  expect(await countOf(server, "/users")).toBe(4);
  expect((await server.call("DELETE", `/users/${user.id}`)).status).toBe(200);
});

// On PostgreSQL, the health check writes to a table that is not held.
test.if(!againstPostgres)(
  "the health check writes when the queue is full, and takes no place of it",
  async () => {
    await using server = await startWithTokens({ MAX_PENDING_WRITES: "2" });
    const { other, post } = server;
    const held = await holdWrites(server.database);
    const posts = [server.writeToken, other].map((token) => times(2, () => post(token)));
    const message = "too many writes are in progress";
    for (const ofToken of posts) expectBusy(await Promise.race(ofToken), message);
    let isChecked = false;
    const health = server.call("GET", "/health").finally(() => {
      isChecked = true;
    });
    expectBusy(await post(other), message);
    expect(isChecked).toBe(false);
    await held[Symbol.asyncDispose]();
    expect((await health).status).toBe(200);
    for (const ofToken of posts) expect(await statusesOf(ofToken)).toEqual([201, 503]);
  },
);

// On Citus, writes do not wait for a locked table: they return 503 after 0.2 s.
test.if(!againstCitus)(
  "a write returns 503 before its body is read when the bodies of others take too much memory",
  async () => {
    const bodyBytes = 2 ** 22;
    await using server = await startWithTokens({ MAX_BODY_BYTES: String(bodyBytes) });
    const { other, post } = server;
    const held = await holdWrites(server.database);

    const posts = times(3, () => post(server.writeToken, bodyBytes));
    const ofToken = "too many bytes of writes are in progress";
    expectBusy(await Promise.race(posts), ofToken);
    const raw = (framing: string) => {
      const headers = ["Content-Type: application/json", framing];
      return rawRequest("POST", "/api/v1/users", { token: server.writeToken, headers });
    };
    // The body is not sent.
    const declared = await server.raw(raw("Content-Length: 20"));
    const inChunks = await server.raw(raw("Transfer-Encoding: chunked") + chunked(["{}"]));
    for (const response of [declared, inChunks]) {
      expect(response).toStartWith("HTTP/1.1 503");
      expect(response).toContain(ofToken);
    }
    const ofOther = times(2, () => post(other, bodyBytes));
    await held[Symbol.asyncDispose]();
    expect(await statusesOf(ofOther)).toEqual([201, 201]);
    expect(await statusesOf(posts)).toEqual([201, 201, 503]);
    expect((await post(server.writeToken, bodyBytes)).status).toBe(201);
  },
);

// On PostgreSQL, few updates run at the same time.
test.if(!againstPostgres)(
  "a write of a large record returns 503 when those of its token take too much memory, while others succeed",
  async () => {
    const bodyBytes = 2 ** 22 - 100;
    await using server = await startWithTokens({ MAX_BODY_BYTES: String(bodyBytes) });
    const { other, post, patch } = server;
    const { id } = await newUser(server);
    const text = "😀".repeat(500);
    for (const start of [0, 25]) {
      const names = Array.from({ length: 25 }, (_, at) => [`k${start + at}`, text]);
      const body = { metadata: Object.fromEntries(names) };
      expect((await server.call("PATCH", `/users/${id}`, { body })).status).toBe(200);
    }
    const small = await newUser(server);

    await untilPending(server, 0);
    const held = await holdWrites(server.database);
    const patches = times(3, () => patch(id));
    const others = [patch(small.id), patch(id, other)];
    await untilPending(server, patches.length + others.length);
    // Their bodies leave less room than the record takes. They are queued behind the patches.
    const posts = times(2, () => post(server.writeToken, bodyBytes));
    await untilPending(server, patches.length + others.length + posts.length);
    await held[Symbol.asyncDispose]();
    expect(await statusesOf(others)).toEqual([200, 200]);
    for (const response of await Promise.all(patches)) {
      expectBusy(response, "too many bytes of writes are in progress");
    }
    expect(await statusesOf(posts)).toEqual([201, 201]);
    expect((await patch(id)).status).toBe(200);
  },
);

// On PostgreSQL, updates of different records do not wait for each other.
test.if(!againstPostgres)(
  "a write waits for one of another token when many of that token have arrived before it",
  async () => {
    await using server = await startWithTokens();
    const [user, userOfOther] = [await newUser(server), await newUser(server)];
    await untilPending(server, 0);
    const held = await holdWrites(server.database);
    const patches = times(20, () => server.patch(user.id));
    await untilPending(server, patches.length);
    patches.push(server.patch(userOfOther.id, server.other));
    await untilPending(server, patches.length);
    await held[Symbol.asyncDispose]();
    for (const { status } of await Promise.all(patches)) expect(status).toBe(200);
    // In the order of the writes. The first two are those of the creates.
    const { json } = await server.call("GET", "/changes?after=2");
    const ids = json.data.map((change: { record_id: number }) => change.record_id);
    expect(ids).toHaveLength(patches.length);
    expect(ids.indexOf(userOfOther.id)).toBe(1);
  },
);

// On PostgreSQL, a large record is read before the write waits.
test.if(!againstPostgres)(
  "a large record is not changed when the client has disconnected while its write waited",
  async () => {
    await using server = await startServer();
    const metadata = Object.fromEntries(
      Array.from({ length: 20 }, (_, at) => [`k${at}`, "x".repeat(500)]),
    );
    const { id } = await newUser(server, { metadata });
    await untilPending(server, 0);
    const held = await holdWrites(server.database);
    const client = new AbortController();
    const patch = fetch(`${server.url}/api/v1/users/${id}`, {
      method: "PATCH",
      headers: {
        authorization: `Bearer ${server.writeToken}`,
        "content-type": "application/json",
      },
      body: JSON.stringify({ name: "new" }),
      signal: client.signal,
    });
    await untilPending(server, 1);
    client.abort();
    expect((await Promise.allSettled([patch]))[0].status).toBe("rejected");
    // The server has closed the connection before it responds to later requests.
    for (let sent = 0; sent < 10; sent += 1) await server.call("GET", "/health");
    await held[Symbol.asyncDispose]();
    const isLogged = async () => (await logs(server)).some(({ method }) => method === "PATCH");
    while (!(await isLogged())) await Bun.sleep(10);
    const lines = await logs(server);
    expect(lines).toContainEqual(expect.objectContaining({ method: "PATCH", status: 499 }));
    expect(lines.map(({ event }) => event)).not.toContain("unavailable");
    const metrics = (await server.call("GET", "/metrics")).text;
    expect(metrics).toContain('{method="PATCH",route="/api/v1/users/:id",status="499"} 1');
    expect(metrics).toContain('{method="PATCH",route="/api/v1/users/:id",status="503"} 0');
    expect((await server.call("GET", `/users/${id}`)).json.data.version).toBe(1);
  },
);

test.if(againstPostgres)(
  "a request with a body returns 503 when too many bodies wait for the look-up of their tokens",
  async () => {
    await using server = await startWithTokens({ MAX_BODY_BYTES: String(2 ** 22) });
    const held = await holdTable(server.database, "tokens in access exclusive mode");
    const post = () => server.post(server.writeToken, 2 ** 16);
    // 128 of 64 KiB have room.
    const posts = times(140, post);
    const message = "too many bytes of writes are in progress";
    expectBusy(await nthOf(12, posts), message);
    await held[Symbol.asyncDispose]();
    const rejected = (await statusesOf(posts)).filter((status) => status === 503);
    expect(rejected.length).toBeWithin(12, 140);
    expect((await post()).status).toBe(201);
  },
);
