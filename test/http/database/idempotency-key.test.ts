import { expect, test } from "bun:test";
import { newToken } from "../../../src/domain/token.ts";
import { expectError, newEmail, newOrder, newUser, stored } from "../make.ts";
import { sendRaw } from "../raw.ts";
import { startSharedServer, type TestResponse } from "../server.ts";

const secondToken = newToken();
const server = await startSharedServer({ API_TOKEN: secondToken });
const user = await newUser(server);
await newOrder(server, user.id);

const newKey = () => `key-${crypto.randomUUID()}`;
const userBody = () => ({ email: newEmail(), name: "Ada", metadata: { b: "2", a: "1" } });
const orderBody = () => ({
  user_id: user.id,
  currency: "EUR",
  items: [{ sku: "a", quantity: 1, unit_price: 250 }],
  metadata: { reference: crypto.randomUUID() },
});

function expectReplay(response: TestResponse, first: TestResponse): void {
  expect([response.status, response.text]).toEqual([first.status, first.text]);
  for (const name of ["location", "etag", "content-type", "cache-control"])
    expect(response.headers.get(name)).toBe(first.headers.get(name));
  expect(response.headers.get("idempotent-replayed")).toBe("true");
  expect(response.headers.get("x-request-id")).not.toBe(first.headers.get("x-request-id"));
}

function expectFresh(response: TestResponse): void {
  expect([200, 201], response.text).toContain(response.status);
  expect(response.headers.has("idempotent-replayed")).toBe(false);
}

/** Writes of a record at version 1, or of a new one, and the status of each with another key afterwards. */
const writes: [method: string, path: string, again: number, newBody?: () => object][] = [
  ["POST", "/users", 409, userBody],
  ["POST", "/orders", 201, orderBody],
  ["PATCH", "/users", 412, () => ({ email: newEmail(), name: "Anna" })],
  ["PUT", "/users", 412, () => ({ email: newEmail(), metadata: { a: "1" } })],
  ["DELETE", "/users", 404],
  ["PATCH", "/orders", 412, () => ({ status: "paid", refunded: 50 })],
  // It changes nothing.
  ["PATCH", "/orders", 412, () => ({ status: "pending", metadata: {} })],
];

// The contract of stores has concurrent writes.
test.each(writes)(
  "a retry of %s %s replays the first response byte for byte, before its preconditions, and changes nothing",
  async (method, path, again, newBody) => {
    const make = () => (path === "/users" ? newUser(server) : newOrder(server, user.id));
    const [{ id }, key, body] = [await make(), newKey(), newBody?.()];
    const targetOf = (at: number) => (method === "POST" ? path : `${path}/${at}`);
    /** Sends the same write, or one of another record. */
    function write({ at = id, ifMatch = 1, key: sent = key, token = server.writeToken } = {}) {
      const precondition = method !== "POST" && { "if-match": `"${ifMatch}"` };
      const headers = { "idempotency-key": sent, ...precondition };
      return server.call(method, targetOf(at), { body, headers, token });
    }
    const first = await write();
    expectFresh(first);
    const one = `${path}/${first.json.data.id}`;
    if (method !== "DELETE") {
      const changed = await server.call("PATCH", one, { body: { metadata: { later: "yes" } } });
      expect(changed.json.data.version).toBe(first.json.data.version + 1);
    }
    const state = () => stored(server, one, `${path}?limit=1`, "/changes?limit=1");
    const before = await state();
    expectReplay(await write(), first);
    expectReplay(await write({ ifMatch: 9 }), first);
    if (body !== undefined) {
      // More spellings are in idempotency.test.ts.
      const turned = Object.fromEntries(Object.entries(body).toReversed());
      const raw = JSON.stringify(turned, null, "\t").replace("metadata", "\\u006detadata");
      const headers = { "idempotency-key": key, "content-type": "application/json" };
      expectReplay(
        await server.call(method, targetOf(first.json.data.id), { raw, headers }),
        first,
      );
    }
    expect(await state()).toEqual(before);
    // The key of another token is another key.
    for (const other of [{ key: newKey() }, { token: secondToken }])
      expect((await write(other)).status).toBe(again);
    // The write of another record is another request.
    if (method === "POST") return;
    const ofOther = await write({ at: (await make()).id });
    expectError(ofOther, 422, "the idempotency key was used for another request");
  },
);

// The model of the contract repeats keys with every other write.
test("a key that was used for a write returns 422 with another method, path or body, and is not used up by an error", async () => {
  const [record, key] = [await newUser(server), newKey()];
  const send = (method: string, path: string, body?: object) =>
    server.call(method, path, { body, headers: { "idempotency-key": key } });
  const [one, body] = [`/users/${record.id}`, { email: newEmail() }];
  expectError(await send("DELETE", `/users/${user.id}`), 409, "user has orders");
  expect((await send("PATCH", "/users/999999", {})).status).toBe(404);
  expect((await send("PATCH", one, { nope: 1 })).status).toBe(400);
  expectFresh(await send("PUT", one, body));
  const state = () => stored(server, one, "/users?limit=1");
  const before = await state();
  for (const [method, path, sent] of [
    ["PATCH", one, body],
    ["PUT", one, { ...body, metadata: { a: "1" } }],
    ["POST", "/users", body],
    ["DELETE", one, undefined],
  ] as const) {
    const response = await send(method, path, sent);
    expectError(response, 422, "the idempotency key was used for another request");
    expect(response.headers.has("idempotent-replayed")).toBe(false);
  }
  expect(await state()).toEqual(before);
});

test("a write returns 400 and changes nothing when its key is sent twice", async () => {
  const before = await stored(server, "/users?limit=1");
  for (const keys of ["a b", "a a"]) {
    const headers = keys.split(" ").map((key) => `Idempotency-Key: ${key}`);
    const request = { token: server.writeToken, headers, json: JSON.stringify(userBody()) };
    expect((await sendRaw(server, "POST", "/api/v1/users", request)).status).toBe(400);
  }
  expect(await stored(server, "/users?limit=1")).toEqual(before);
});
