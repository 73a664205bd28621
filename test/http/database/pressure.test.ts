import { expect, test } from "bun:test";
import { newToken } from "../../../src/token.ts";
import { againstCitus, againstPostgres, holdTable, holdWrites } from "../backend.ts";
import { newEmail, newUser } from "../make.ts";
import { startServer, type TestResponse } from "../server.ts";

function expectBusy(response: TestResponse | undefined, message: string): void {
  expect(response?.status).toBe(503);
  expect(response?.headers.get("retry-after")).toBe("1");
  expect(response?.json).toEqual({ data: null, error: message, meta: { code: "unavailable" } });
}

test("a write returns 503 with Retry-After when its token has half of the queue, while others succeed", async () => {
  const other = newToken();
  await using server = await startServer({ MAX_PENDING_WRITES: "4", API_TOKEN: other });
  const user = await newUser(server);
  // Another process writes, so that writes of the server wait.
  const held = await holdWrites(server.database);

  const body = () => ({ email: newEmail() });
  const posts = Array.from({ length: 12 }, () => server.call("POST", "/users", { body: body() }));
  expectBusy(await Promise.race(posts), "this token has too many writes in progress");
  const remove = await server.call("DELETE", `/users/${user.id}`);
  expectBusy(remove, "this token has too many writes in progress");
  const ofOther = server.call("POST", "/users", { body: body(), token: other });
  expect((await server.call("GET", `/users/${user.id}`)).status).toBe(200);
  expect((await server.call("GET", "/users")).json.meta.total).toBe(1);

  await held[Symbol.asyncDispose]();
  expect((await ofOther).status).toBe(201);
  const statuses = (await Promise.all(posts)).map(({ status }) => status);
  expect(statuses.filter((status) => status === 201)).toHaveLength(2);
  expect(statuses.filter((status) => status === 503)).toHaveLength(10);
  expect((await server.call("GET", "/users")).json.meta.total).toBe(4);
  expect((await server.call("DELETE", `/users/${user.id}`)).status).toBe(200);
});

// On Citus, writes do not wait for a locked table: they return 503 after 0.2 s.
test.if(!againstCitus)(
  "a write returns 503 before its body is read when the bodies of others take too much memory",
  async () => {
    const other = newToken();
    const bodyBytes = 2 ** 22;
    await using server = await startServer({ MAX_BODY_BYTES: String(bodyBytes), API_TOKEN: other });
    const held = await holdWrites(server.database);

    const post = (token: string, bytes: number) => {
      const headers = { "content-type": "application/json" };
      const raw = JSON.stringify({ email: newEmail() }).padEnd(bytes);
      return server.call("POST", "/users", { raw, headers, token });
    };
    const posts = Array.from({ length: 3 }, () => post(server.writeToken, bodyBytes));
    const ofToken = "this token has too many bytes of writes in progress";
    expectBusy(await Promise.race(posts), ofToken);
    const head = [
      "POST /api/v1/users HTTP/1.1",
      "Host: localhost",
      `Authorization: Bearer ${server.writeToken}`,
      "Content-Type: application/json",
    ].join("\r\n");
    // The body is not sent.
    const declared = await server.raw(`${head}\r\nContent-Length: 20\r\n\r\n`);
    const chunked = await server.raw(
      `${head}\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
    );
    for (const response of [declared, chunked]) {
      expect(response).toStartWith("HTTP/1.1 503");
      expect(response).toContain(ofToken);
    }
    const ofOther = Array.from({ length: 2 }, () => post(other, bodyBytes));
    await held[Symbol.asyncDispose]();
    for (const response of await Promise.all(ofOther)) expect(response.status).toBe(201);
    const statuses = (await Promise.all(posts)).map(({ status }) => status);
    expect(statuses.sort()).toEqual([201, 201, 503]);
    expect((await post(server.writeToken, bodyBytes)).status).toBe(201);
  },
);

// On PostgreSQL, few updates run at the same time.
test.if(!againstPostgres)(
  "a write of a large record returns 503 when those of its token take too much memory, while others succeed",
  async () => {
    const other = newToken();
    await using server = await startServer({ API_TOKEN: other });
    const { id } = await newUser(server);
    const text = "😀".repeat(500);
    for (const start of [0, 25]) {
      const names = Array.from({ length: 25 }, (_, at) => [`k${start + at}`, text]);
      const body = { metadata: Object.fromEntries(names) };
      expect((await server.call("PATCH", `/users/${id}`, { body })).status).toBe(200);
    }
    const record = await server.call("GET", `/users/${id}`);
    const mostAtOnce = Math.floor(2 ** 23 / (2 * Buffer.byteLength(record.text)));
    const small = await newUser(server);

    const held = await holdWrites(server.database);
    const patch = (userId: number, token = server.writeToken) =>
      server.call("PATCH", `/users/${userId}`, { body: { name: "new" }, token });
    const patches = Array.from({ length: 2 * mostAtOnce }, () => patch(id));
    const others = [patch(small.id), patch(id, other)];
    const pending = async () => {
      const { text } = await server.call("GET", "/metrics");
      return Number(/^user_api_pending_writes (\d+)$/m.exec(text)?.[1]);
    };
    while ((await pending()) < patches.length + others.length) await Bun.sleep(10);
    await held[Symbol.asyncDispose]();
    for (const { status } of await Promise.all(others)) expect(status).toBe(200);
    const responses = await Promise.all(patches);
    const rejected = responses.filter(({ status }) => status !== 200);
    expect(rejected.length).toBeWithin(mostAtOnce, patches.length);
    for (const response of rejected) {
      expectBusy(response, "this token has too many bytes of writes in progress");
    }
    expect((await patch(id)).status).toBe(200);
  },
);

test.if(againstPostgres)(
  "a request with a body returns 503 when too many bodies wait for the look-up of their tokens",
  async () => {
    await using server = await startServer({ MAX_BODY_BYTES: String(2 ** 22) });
    const held = await holdTable(server.database, "tokens in access exclusive mode");
    const headers = { "content-type": "application/json" };
    const post = () => {
      const raw = JSON.stringify({ email: newEmail() }).padEnd(2 ** 16);
      return server.call("POST", "/users", { raw, headers });
    };
    // 128 of 64 KiB have room.
    const posts = Array.from({ length: 140 }, post);
    const message = "tokens that are being looked up have too many bytes of writes in progress";
    expectBusy(await Promise.race(posts), message);
    await held[Symbol.asyncDispose]();
    const statuses = (await Promise.all(posts)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 503).length).toBeWithin(12, 140);
    expect((await post()).status).toBe(201);
  },
);
