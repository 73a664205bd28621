import { expect, test } from "bun:test";
import { countOf, newEmail, newOrder, newUser } from "../make.ts";
import { againstBinary, startServer, type TestResponse, type TestServer } from "../server.ts";
import { startRequest, untilPortClosed } from "../stopping.ts";

/** Kills the server. In process, it can only be stopped. */
function kill(server: TestServer): Promise<number> {
  return againstBinary ? server.stop("SIGKILL") : server.stop();
}

function create(server: TestServer, email: string, key: string): Promise<TestResponse> {
  return server.call("POST", "/users", { body: { email }, headers: { "idempotency-key": key } });
}

test("records are as last acknowledged after the server was killed", async () => {
  await using server = await startServer();
  const user = await newUser(server, { name: "Ünïcode 😀", metadata: { a: "1" } });
  const order = await newOrder(server, user.id);
  const gone = await newUser(server);
  const paths = [`/users/${user.id}`, `/orders/${order.id}`];
  await server.call("PATCH", paths[0] as string, { body: { name: null } });
  await server.call("PATCH", paths[1] as string, { body: { status: "paid" } });
  await server.call("DELETE", `/users/${gone.id}`);
  const all = [...paths, "/users", "/orders", `/orders?user_id=${user.id}&status=paid`];
  const before = await Promise.all(all.map((path) => server.call("GET", path)));
  await kill(server);
  await server.restart();
  for (const [index, path] of all.entries()) {
    const after = await server.call("GET", path);
    expect([after.status, after.text], path).toEqual([200, before[index]?.text as string]);
    expect(after.headers.get("etag")).toBe(before[index]?.headers.get("etag") as string | null);
  }
  expect((await server.call("GET", `/users/${gone.id}`)).status).toBe(404);
  expect((await newUser(server)).id).toBeGreaterThan(gone.id);
});

test("versions, tokens and idempotency keys persist after the server was killed", async () => {
  await using server = await startServer();
  const [email, key] = [newEmail(), crypto.randomUUID()];
  const first = await create(server, email, key);
  const path = `/users/${first.json.data.id}`;
  await server.call("PATCH", path, { body: { name: "Second" } });
  await kill(server);
  await server.restart();
  const edit = (etag: string, token = server.writeToken) =>
    server.call("PATCH", path, { body: { name: "Third" }, headers: { "if-match": etag }, token });
  expect((await edit('"2"', server.readToken)).status).toBe(403);
  expect((await edit('"1"')).status).toBe(412);
  const replay = await create(server, email, key);
  expect([replay.status, replay.text]).toEqual([201, first.text]);
  expect(replay.headers.get("idempotent-replayed")).toBe("true");
  expect((await create(server, newEmail(), key)).status).toBe(422);
  const edited = await edit('"2"');
  expect([edited.status, edited.json.data.version]).toEqual([200, 3]);
  expect(await countOf(server, "/users")).toBe(1);
});

test("acknowledged writes persist, and retries create no duplicates, when the server is killed under load", async () => {
  await using server = await startServer();
  const acknowledged = new Map<string, TestResponse>();
  const jobs = Array.from({ length: 400 }, () => ({ email: newEmail(), key: crypto.randomUUID() }));
  const enough = Promise.withResolvers<void>();
  const sent = jobs.map(async ({ email, key }) => {
    const response = await create(server, email, key).catch(() => null);
    if (response?.status === 201) acknowledged.set(email, response);
    if (acknowledged.size >= 50) enough.resolve();
  });
  await Promise.race([enough.promise, Promise.all(sent)]);
  await kill(server);
  await Promise.all(sent);
  expect(acknowledged.size).toBeGreaterThanOrEqual(50);
  await server.restart();
  const reread = [...acknowledged.values()].map(async (response) => {
    const read = await server.call("GET", `/users/${response.json.data.id}`);
    expect([read.status, read.text]).toEqual([200, response.text]);
  });
  const retried = jobs.map(async ({ email, key }) => {
    const response = await create(server, email, key);
    expect([response.status, response.text]).toEqual([
      201,
      acknowledged.get(email)?.text ?? response.text,
    ]);
  });
  await Promise.all([...reread, ...retried]);
  const users = (await server.call("GET", "/users?limit=1000")).json;
  expect(users.meta.total).toBe(jobs.length);
  const emails = users.data.map((user: { email: string }) => user.email);
  expect(new Set(emails)).toEqual(new Set(jobs.map(({ email }) => email)));
}, 20_000);

test.if(againstBinary)("SIGTERM lets a request in flight finish", async () => {
  await using server = await startServer({ SHUTDOWN_SECONDS: "30" });
  const email = newEmail();
  const request = startRequest(server, email);
  for (let round = 0; round < 5; round += 1) await server.call("GET", "/health");
  const stopped = server.stop("SIGTERM");
  await untilPortClosed(server);
  request.finish();
  expect(await request.response).toStartWith("HTTP/1.1 201");
  await stopped;
  await server.restart();
  const found = await server.call("GET", `/users?email=${encodeURIComponent(email)}`);
  expect(found.json.meta.total).toBe(1);
});
