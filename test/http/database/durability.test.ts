import { expect, test } from "bun:test";
import { newEmail, newOrder, newUser } from "../make.ts";
import { againstBinary, startServer } from "../server.ts";

// Load while it is killed: changes-model.test.ts in test/binary and test/replicas.
test("records, versions, tokens and idempotency keys are as last acknowledged after the server was killed", async () => {
  await using server = await startServer();
  const user = await newUser(server, { name: "Ünïcode 😀", metadata: { a: "1" } });
  const order = await newOrder(server, user.id);
  const gone = await newUser(server);
  const one = `/users/${user.id}`;
  await server.call("PATCH", one, { body: { name: null } });
  await server.call("PATCH", `/orders/${order.id}`, { body: { status: "paid" } });
  await server.call("DELETE", `/users/${gone.id}`);
  const headers = { "idempotency-key": "a" };
  const body = { email: newEmail() };
  const first = await server.call("POST", "/users", { body, headers });
  const of = `/orders?user_id=${user.id}&status=paid`;
  const paths = [one, `/orders/${order.id}`, "/users", "/orders", of];
  const before = await Promise.all(paths.map((path) => server.call("GET", path)));
  // In process, it can only be stopped.
  await server.stop(againstBinary ? "SIGKILL" : "SIGTERM");
  await server.restart();
  for (const [index, path] of paths.entries()) {
    const after = await server.call("GET", path);
    expect([after.status, after.text], path).toEqual([200, before[index]?.text as string]);
    expect(after.headers.get("etag")).toBe(before[index]?.headers.get("etag") as string | null);
  }
  expect((await server.call("GET", `/users/${gone.id}`)).status).toBe(404);
  const edit = (version: number, token = server.writeToken) =>
    server.call("PATCH", one, {
      body: { name: "Third" },
      headers: { "if-match": `"${version}"` },
      token,
    });
  expect((await edit(2, server.readToken)).status).toBe(403);
  expect((await edit(1)).status).toBe(412);
  expect((await edit(2)).json.data.version).toBe(3);
  const replay = await server.call("POST", "/users", { body, headers });
  expect([replay.status, replay.text]).toEqual([201, first.text]);
  expect(replay.headers.get("idempotent-replayed")).toBe("true");
  const other = await server.call("POST", "/users", { body: { email: newEmail() }, headers });
  expect(other.status).toBe(422);
  expect((await newUser(server)).id).toBeGreaterThan(first.json.data.id);
});
