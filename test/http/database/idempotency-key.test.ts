import { describe, expect, test } from "bun:test";
import { newToken } from "../../../src/domain/token.ts";
import { countOf, expectError, newEmail, newUser } from "../make.ts";
import { sendRaw } from "../raw.ts";
import { startSharedServer, type TestResponse } from "../server.ts";

const secondToken = newToken();
const server = await startSharedServer({ API_TOKEN: secondToken });
const user = await newUser(server);

const newKey = () => `key-${crypto.randomUUID()}`;
const userBody = () => ({ email: newEmail(), name: "Ada", metadata: { b: "2", a: "1" } });
const orderBody = () => ({
  user_id: user.id,
  currency: "EUR",
  items: [{ sku: "a", quantity: 1, unit_price: 250 }],
  metadata: { reference: crypto.randomUUID() },
});

interface Post {
  raw?: string;
  token?: string;
}

/** Sends a POST with a key, and with `raw` instead of `body` if given. */
function post(path: string, key: string, body: unknown, { raw, token }: Post = {}) {
  const headers = { "idempotency-key": key, "content-type": "application/json" };
  const sent = raw === undefined ? { body } : { raw };
  return server.call("POST", path, { ...sent, headers, ...(token && { token }) });
}

function expectReplay(response: TestResponse, first: TestResponse): void {
  expect(response.status, response.text).toBe(201);
  expect(response.text).toBe(first.text);
  for (const name of ["location", "etag", "content-type", "cache-control"])
    expect(response.headers.get(name)).toBe(first.headers.get(name));
  expect(response.headers.get("idempotent-replayed")).toBe("true");
  expect(response.headers.get("x-request-id")).not.toBe(first.headers.get("x-request-id"));
}

function expectFresh(response: TestResponse): void {
  expect(response.status, response.text).toBe(201);
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
  test("a retry replays the first response byte for byte, also when its JSON is formatted differently", async () => {
    const [key, body] = [newKey(), newBody()];
    const first = await post(path, key, body);
    expectFresh(first);
    const before = await countOf(server, path);
    expectReplay(await post(path, key, body), first);
    // More spellings are in idempotency.test.ts.
    const turned = Object.fromEntries(Object.entries(body).toReversed());
    const spelled = JSON.stringify(turned, null, "\t").replace("metadata", "\\u006detadata");
    const raw = spelled.replace('"quantity": 1', '"quantity": 1.0').replace(": 250", ": 25e1");
    expectReplay(await post(path, key, body, { raw }), first);
    expect(await countOf(server, path)).toBe(before);
  });

  test("a retry replays the first response when the record has changed since", async () => {
    const [key, body] = [newKey(), newBody()];
    const first = await post(path, key, body);
    const one = `${path}/${first.json.data.id}`;
    const changed = await server.call("PATCH", one, { body: { metadata: { later: "yes" } } });
    expect(changed.json.data.version).toBe(2);
    expectReplay(await post(path, key, body), first);
    expect((await server.call("GET", one)).text).toBe(changed.text);
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
    const second = await post(path, key, other, { token: secondToken });
    expectFresh(second);
    expect(second.json.data.id).not.toBe(first.json.data.id);
    expectReplay(await post(path, key, body), first);
    expectReplay(await post(path, key, other, { token: secondToken }), second);
  });

  test.each([
    ["are equal", 20],
    ["differ", 1],
  ])("a key creates one record when 20 concurrent requests %s", async (_how, created) => {
    const [key, body] = [newKey(), newBody()];
    const before = await countOf(server, path);
    const all = await Promise.all(
      Array.from({ length: 20 }, () => post(path, key, created === 20 ? body : newBody())),
    );
    const first = all.filter(({ status }) => status === 201);
    expect([first.length, new Set(first.map(({ text }) => text)).size]).toEqual([created, 1]);
    const fresh = first.filter(({ headers }) => !headers.has("idempotent-replayed"));
    expect(fresh).toHaveLength(1);
    for (const response of all) if (response.status !== 201) expectReused(response);
    expect(await countOf(server, path)).toBe(before + 1);
  });

  test("a key returns 400 and creates nothing when it is sent twice", async () => {
    const before = await countOf(server, path);
    const json = JSON.stringify(newBody());
    const [a, b] = [newKey(), newKey()];
    for (const keys of [
      [a, b],
      [a, a],
    ]) {
      const headers = keys.map((key) => `Idempotency-Key: ${key}`);
      const request = { token: server.writeToken, headers, json };
      expect((await sendRaw(server, "POST", `/api/v1${path}`, request)).status).toBe(400);
    }
    expect(await countOf(server, path)).toBe(before);
  });
});

test("a retry replays the creation when the user was deleted since", async () => {
  const [key, body] = [newKey(), userBody()];
  const first = await post("/users", key, body);
  const one = `/users/${first.json.data.id}`;
  expect((await server.call("DELETE", one)).status).toBe(200);
  expectReplay(await post("/users", key, body), first);
  expect((await server.call("GET", one)).status).toBe(404);
  const again = await post("/users", newKey(), body);
  expectFresh(again);
  expect(again.json.data.id).toBeGreaterThan(first.json.data.id);
});

test("a key returns 422 when it was used on another path, and has no effect on GET", async () => {
  const [key, body] = [newKey(), userBody()];
  const { id } = (await post("/users", key, body)).json.data;
  expectReused(await post("/orders", key, orderBody()));
  const headers = { "idempotency-key": key };
  const response = await server.call("GET", `/users/${id}`, { headers });
  expect([response.status, response.json.data.version]).toEqual([200, 1]);
  expect(response.headers.has("idempotent-replayed")).toBe(false);
});
