import { describe, expect, test } from "bun:test";
import { newToken } from "../../../src/domain/token.ts";
import { countOf, expectError, newEmail, newOrder, newUser, stored } from "../make.ts";
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

/** Sends a POST with a key, and with `raw` instead of `body` if given. */
function post(path: string, key: string, body: unknown, raw?: string, token?: string) {
  const headers = { "idempotency-key": key, "content-type": "application/json" };
  const sent = raw === undefined ? { body } : { raw };
  return server.call("POST", path, { ...sent, headers, ...(token && { token }) });
}

function expectReplay(response: TestResponse, first: TestResponse): void {
  expect([response.status, response.text]).toEqual([first.status, first.text]);
  for (const name of ["location", "etag", "content-type", "cache-control"])
    expect(response.headers.get(name)).toBe(first.headers.get(name));
  expect(response.headers.get("idempotent-replayed")).toBe("true");
  expect(response.headers.get("x-request-id")).not.toBe(first.headers.get("x-request-id"));
}

function expectFresh(response: TestResponse, status = 201): void {
  expect(response.status, response.text).toBe(status);
  expect(response.headers.has("idempotent-replayed")).toBe(false);
}

function expectReused(response: TestResponse): void {
  expectError(response, 422, "the idempotency key was used for another request");
  expect(response.headers.has("idempotent-replayed")).toBe(false);
}

describe.each([
  ["/users", userBody],
  ["/orders", orderBody],
] as [string, () => Record<string, unknown>][])("Idempotency-Key on POST %s", (path, newBody) => {
  test("a retry replays the first response byte for byte, also when its JSON is formatted differently or the record has changed", async () => {
    const [key, body] = [newKey(), newBody()];
    const first = await post(path, key, body);
    expectFresh(first);
    const before = await countOf(server, path);
    expectReplay(await post(path, key, body), first);
    const one = `${path}/${first.json.data.id}`;
    const changed = await server.call("PATCH", one, { body: { metadata: { later: "yes" } } });
    expect(changed.json.data.version).toBe(2);
    // More spellings are in idempotency.test.ts.
    const turned = Object.fromEntries(Object.entries(body).toReversed());
    const raw = JSON.stringify(turned, null, "\t").replace("metadata", "\\u006detadata");
    expectReplay(await post(path, key, body, raw), first);
    expect((await server.call("GET", one)).text).toBe(changed.text);
    expect(await countOf(server, path)).toBe(before);
  });

  test("a retry returns 422 and creates nothing when the body differs", async () => {
    const [key, body] = [newKey(), newBody()];
    expectFresh(await post(path, key, body));
    const before = await countOf(server, path);
    const { metadata: _, ...less } = body;
    const more = { ...(body["metadata"] as object), c: "3" };
    for (const other of [newBody(), less, { ...body, metadata: {} }, { ...body, metadata: more }])
      expectReused(await post(path, key, other));
    expect(await countOf(server, path)).toBe(before);
  });

  test("a key is independent when another token sends it", async () => {
    const [key, body, other] = [newKey(), newBody(), newBody()];
    const first = await post(path, key, body);
    const second = await post(path, key, other, undefined, secondToken);
    expectFresh(second);
    expect(second.json.data.id).not.toBe(first.json.data.id);
    expectReplay(await post(path, key, body), first);
    expectReplay(await post(path, key, other, undefined, secondToken), second);
  });

  test("a key returns 400 and creates nothing when it is sent twice", async () => {
    const before = await countOf(server, path);
    const json = JSON.stringify(newBody());
    for (const keys of ["a b", "a a"]) {
      const headers = keys.split(" ").map((key) => `Idempotency-Key: ${key}`);
      const request = { token: server.writeToken, headers, json };
      expect((await sendRaw(server, "POST", `/api/v1${path}`, request)).status).toBe(400);
    }
    expect(await countOf(server, path)).toBe(before);
  });
});

/** Writes of a record at version 1, and the status of one with another key afterwards. The last one changes nothing. */
const changes: [method: string, path: string, again: number, newBody?: () => object][] = [
  ["PATCH", "/users", 412, () => ({ email: newEmail(), name: "Anna" })],
  ["PUT", "/users", 412, () => ({ email: newEmail() })],
  ["DELETE", "/users", 404],
  ["PATCH", "/orders", 412, () => ({ status: "paid", refunded: 50 })],
  ["PATCH", "/orders", 200, () => ({ status: "pending" })],
];

// The contract of stores has concurrent writes, and records that have changed since.
describe.each(changes)("Idempotency-Key on %s %s/:id", (method, path, again, newBody) => {
  const make = () => (path === "/users" ? newUser(server) : newOrder(server, user.id));
  /** Creates a record. `write` sends the same change of it, or of another one. */
  const start = async () => {
    const [{ id }, key, body] = [await make(), newKey(), newBody?.()];
    function write({ at = id, ifMatch = 1, key: sent = key, token = server.writeToken } = {}) {
      const headers = { "idempotency-key": sent, "if-match": `"${ifMatch}"` };
      return server.call(method, `${path}/${at}`, { body, headers, token });
    }
    return { id, key, body, write };
  };
  test("a retry replays the first response, before its preconditions, and changes nothing", async () => {
    const { id, write } = await start();
    const first = await write();
    expectFresh(first, 200);
    const after = await stored(server, `${path}/${id}`, `${path}?limit=1`);
    const changesBefore = await countOf(server, "/changes");
    expectReplay(await write(), first);
    expectReplay(await write({ ifMatch: 9 }), first);
    // The key of another token is another key.
    for (const other of [{ key: newKey() }, { token: secondToken }])
      expect((await write(other)).status).toBe(again);
    expect(await stored(server, `${path}/${id}`, `${path}?limit=1`)).toEqual(after);
    expect(await countOf(server, "/changes")).toBe(changesBefore);
  });

  test("a write returns 422 and changes nothing when its key was used with another method, path or body", async () => {
    const [{ id, key, body, write }, other] = [await start(), await make()];
    expectFresh(await write(), 200);
    const before = await stored(server, `${path}/${id}`, `${path}/${other.id}`);
    const headers = { "idempotency-key": key };
    const sibling = method === "PUT" ? "PATCH" : "PUT";
    for (const [otherMethod, otherPath, otherBody] of [
      ...(path === "/users"
        ? [[sibling, `/users/${id}`, body ?? { email: newEmail() }] as const]
        : []),
      [method, `${path}/${other.id}`, body],
      ["POST", path, path === "/users" ? userBody() : orderBody()],
      ["PATCH", `${path}/${id}`, { metadata: { a: "1" } }],
      ["PATCH", path === "/users" ? `/orders/${id}` : `/users/${id}`, {}],
      ["DELETE", `/users/${user.id}`, undefined],
    ] as const) {
      const options = { body: otherBody, headers };
      expectReused(await server.call(otherMethod, otherPath, options));
    }
    expect(await stored(server, `${path}/${id}`, `${path}/${other.id}`)).toEqual(before);
  });

  test("a key is not used up by an error", async () => {
    const { id, key, write } = await start();
    const headers = { "idempotency-key": key };
    expect((await write({ at: 999_999 })).status).toBe(404);
    expect((await write({ ifMatch: 9 })).status).toBe(412);
    const removed = await server.call("DELETE", `/users/${user.id}`, { headers });
    expectError(removed, 409, "user has orders");
    const invalid = await server.call("PATCH", `${path}/${id}`, { body: { nope: 1 }, headers });
    expect(invalid.status).toBe(400);
    expectFresh(await write(), 200);
  });
});
