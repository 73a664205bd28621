import { expect, test } from "bun:test";
import { newToken } from "../../../src/domain/token.ts";
import { expectError, newEmail, newOrder, newUser, stored } from "../make.ts";
import { sendRaw } from "../raw.ts";
import { type CallOptions, startSharedServer, type TestResponse } from "../server.ts";

const secondToken = newToken();
const server = await startSharedServer({ API_TOKEN: secondToken });
const user = await newUser(server);
await newOrder(server, user.id);

const userBody = () => ({ email: newEmail(), name: "Ada", metadata: { b: "2", a: "1" } });
const items = [{ sku: "a", quantity: 1, unit_price: 250 }];
const orderBody = () => ({ user_id: user.id, currency: "EUR", items, metadata: { a: "1" } });

function expectReplay(response: TestResponse, first: TestResponse): void {
  expect([response.status, response.text]).toEqual([first.status, first.text]);
  for (const name of ["location", "etag", "content-type", "cache-control"])
    expect(response.headers.get(name)).toBe(first.headers.get(name));
  expect(response.headers.get("idempotent-replayed")).toBe("true");
  expect(response.headers.get("x-request-id")).not.toBe(first.headers.get("x-request-id"));
}

/** Writes of a record at version 1, or of a new one, and the status of each with the key of another token afterwards. */
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

// The model of the contract has concurrent writes, and keys that were used for other requests.
test.each(writes)(
  "a retry of %s %s replays the first response byte for byte, before its preconditions, and changes nothing",
  async (method, path, again, newBody) => {
    const make = () => (path === "/users" ? newUser(server) : newOrder(server, user.id));
    const [{ id }, key, body] = [await make(), crypto.randomUUID(), newBody?.()];
    const typed = { "idempotency-key": key, "content-type": "application/json" };
    /** Sends the same write, or one of another record, or by another token. */
    function write({ at = id, ifMatch = 1, ...options }: CallOptions & Record<string, any> = {}) {
      const headers = { ...typed, ...(method !== "POST" && { "if-match": `"${ifMatch}"` }) };
      const target = method === "POST" ? path : `${path}/${at}`;
      return server.call(method, target, { body, headers, ...options });
    }
    const first = await write();
    expect([200, 201], first.text).toContain(first.status);
    expect(first.headers.has("idempotent-replayed")).toBe(false);
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
      expectReplay(await write({ body: undefined, raw }), first);
    }
    expect(await state()).toEqual(before);
    expect((await write({ token: secondToken })).status).toBe(again);
    // The write of another record is another request.
    if (method === "POST") return;
    const ofOther = await write({ at: (await make()).id });
    expectError(ofOther, 422, "the idempotency key was used for another request");
  },
);

test("a write returns 400 and changes nothing when its key is sent twice", async () => {
  const before = await stored(server, "/users?limit=1");
  for (const keys of ["a b", "a a"]) {
    const headers = keys.split(" ").map((key) => `Idempotency-Key: ${key}`);
    const request = { token: server.writeToken, headers, json: JSON.stringify(userBody()) };
    expect((await sendRaw(server, "POST", "/api/v1/users", request)).status).toBe(400);
  }
  expect(await stored(server, "/users?limit=1")).toEqual(before);
});
