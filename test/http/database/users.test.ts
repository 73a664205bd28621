import { expect, test } from "bun:test";
import {
  expectError,
  type Fields,
  metadataOf,
  newEmail,
  newUser,
  stored,
  timeFormat,
} from "../make.ts";
import { startSharedServer } from "../server.ts";

const server = await startSharedServer();

const emoji = "😀"; // One code point, two UTF-16 units, four bytes.
/** @returns a valid email of `length` code points, with labels of at most 60 */
const longEmail = (length: number) =>
  `${crypto.randomUUID().padEnd(length - 196, "z")}@${`${"d".repeat(47)}.`.repeat(4)}com`;

test("POST /users returns the record with its defaults when only email is given", async () => {
  const email = `As-Typed+${crypto.randomUUID()}@Example.COM`;
  const response = await server.call("POST", "/users", { body: { email } });
  expect(response.status).toBe(201);
  const user = response.json.data;
  expect(user).toEqual({
    ...{ id: user.id, email, reference: null, name: null, metadata: {}, version: 1 },
    ...{ created_at: expect.stringMatching(timeFormat), updated_at: user.created_at },
  });
  expect(response.headers.get("location")).toBe(`/api/v1/users/${user.id}`);
  expect(response.headers.get("etag")).toBe('"1"');
  const got = await server.call("GET", `/users/${user.id}`);
  expect(got.headers.get("etag")).toBe('"1"');
  expect(got.headers.get("cache-control")).toBe("private, no-cache");
  expect(got.json).toEqual({ data: user, error: null });
});

test("email selects the one user in any spelling, and is taken in each", async () => {
  // More spellings are in user.test.ts.
  const host = `${crypto.randomUUID()}.bücher.example`;
  const [email, same] = [`𐐨αςασ+tag@${host}`, `𐐀ΑΣΑΣ+TAG@${host.toUpperCase()}`];
  const user = await newUser(server, { email });
  for (const form of [email, same]) {
    const found = await server.call("GET", `/users?email=${encodeURIComponent(form)}`);
    expect(found.json.data).toEqual([user]);
    expect(found.json.meta).toEqual({ total: 1, limit: 50, offset: 0 });
  }
  const rival = await newUser(server);
  const before = await stored(server, "/users?limit=1", `/users/${rival.id}`);
  for (const [method, path] of [
    ["POST", "/users"],
    ["PATCH", `/users/${rival.id}`],
    ["PUT", `/users/${rival.id}`],
  ] as const) {
    const response = await server.call(method, path, { body: { email: same } });
    expectError(response, 409, "email is already taken", host);
  }
  expect(await stored(server, "/users?limit=1", `/users/${rival.id}`)).toEqual(before);
  const own = await server.call("PATCH", `/users/${user.id}`, { body: { email: same } });
  expect(own.json.data).toMatchObject({ id: user.id, email: same });
});

test("GET /users?email returns an empty page when no user has the email, and reads + as a plus sign", async () => {
  const plus = await newUser(server, { email: `a+b-${crypto.randomUUID()}@example.com` });
  expect((await server.call("GET", `/users?email=${plus.email}`)).json.data).toEqual([plus]);
  const none = await server.call("GET", `/users?email=${newEmail()}`);
  expect(none.json).toEqual({ data: [], error: null, meta: { total: 0, limit: 50, offset: 0 } });
  for (const bad of ["", "nobody-at-all", "a%00b@example.com", "a%20b@example.com"]) {
    const response = await server.call("GET", `/users?email=${bad}`);
    expectError(response, 400, /^Validation failed: email must /, "nobody-at-all");
  }
});

const [moved, other] = [newEmail(), newEmail()];
const full = { name: "Anne", metadata: { a: "1", b: "2" } };
const merged = { a: null, c: "3", gone: null };
test.each<[when: string, method: string, body: Fields, changed: Fields]>([
  ["PATCH has an email", "PATCH", { email: moved }, { email: moved }],
  ["PATCH has null as name", "PATCH", { name: null }, { name: null }],
  ["PATCH has null as metadata", "PATCH", { metadata: null }, { metadata: {} }],
  ["PATCH has keys", "PATCH", { metadata: merged }, { metadata: { b: "2", c: "3" } }],
  ["PUT omits fields", "PUT", { email: other }, { email: other, name: null, metadata: {} }],
])(
  "a user has the given fields, and resets only what is omitted by PUT, when %s",
  async (_when, method, body, changed) => {
    const user = await newUser(server, full);
    const response = await server.call(method, `/users/${user.id}`, { body });
    expect([response.status, response.headers.get("etag")]).toEqual([200, '"2"']);
    const { updated_at } = response.json.data;
    expect(updated_at).toMatch(timeFormat);
    expect(updated_at >= user.updated_at).toBe(true);
    expect(response.json).toEqual({
      data: { ...user, ...changed, version: 2, updated_at },
      error: null,
    });
    expect((await server.call("GET", `/users/${user.id}`)).json).toEqual(response.json);
  },
);

test("PATCH and PUT of a user change nothing, not even the version, when every field stays as it is", async () => {
  const user = await newUser(server, full);
  const { email, name, metadata } = user;
  for (const [method, body] of [
    ["PATCH", { email, metadata: {} }],
    ["PATCH", { name, metadata: { a: "1", absent: null } }],
    ["PUT", { metadata, name, email }],
  ] as const) {
    const stale = { "if-match": '"2"' };
    const refused = await server.call(method, `/users/${user.id}`, { body, headers: stale });
    expectError(refused, 412, "the record has changed: it is at version 1");
    const response = await server.call(method, `/users/${user.id}`, { body });
    expect([response.status, response.headers.get("etag")]).toEqual([200, '"1"']);
    expect(response.json).toEqual({ data: user, error: null });
    expect((await server.call("GET", `/users/${user.id}`)).json.data).toEqual(user);
  }
});

test("DELETE /users/:id returns the deleted user, then 404, and frees the email but not the id", async () => {
  const user = await newUser(server, full);
  const response = await server.call("DELETE", `/users/${user.id}`);
  expect(response.status).toBe(200);
  expect(response.json).toEqual({ data: user, error: null });
  for (const method of ["GET", "PATCH", "PUT", "DELETE"]) {
    const body = method === "PATCH" || method === "PUT" ? { email: newEmail() } : undefined;
    const gone = await server.call(method, `/users/${user.id}`, { body });
    expectError(gone, 404, "user not found");
  }
  const next = await newUser(server, { email: user.email });
  expect(next.id).toBeGreaterThan(user.id);
  // So does a change of the email.
  await server.call("PATCH", `/users/${next.id}`, { body: { email: newEmail() } });
  await newUser(server, { email: user.email });
});

const badId = "Validation failed: id must be a positive integer";
test("a user is not found when the id is not canonical, or larger than any", async () => {
  await newUser(server);
  const before = await stored(server, "/users?limit=1000");
  for (const [ids, status, error] of [
    ["0 -1 +1 01 1.0 0x1 1e0 %201 1%20 1%00 abc 1,2 %D9%A1", 400, badId],
    [`9007199254740993 9223372036854775808 ${"1".repeat(30)}`, 404, "user not found"],
  ] as const)
    for (const id of ids.split(" "))
      for (const method of ["GET", "PATCH", "PUT", "DELETE"]) {
        const body = method === "PATCH" || method === "PUT" ? { email: newEmail() } : undefined;
        expectError(await server.call(method, `/users/${id}`, { body }), status, error);
      }
  expect(await stored(server, "/users?limit=1000")).toEqual(before);
});

const accepted: Fields[] = [
  { email: longEmail(254), name: emoji.repeat(200), metadata: metadataOf(50) },
  // Kept as typed: no trimming, no normalising.
  {
    ...{ email: newEmail(), name: ' \ufeff\u0001\u2028e\u0301\ufffd"\\/\n' },
    metadata: {
      [emoji.repeat(40)]: emoji.repeat(500),
      ["__proto__"]: "p",
      toString: "",
      "a.b[0]": "d",
    },
  },
];
test.each(accepted)(
  "users keep every character when fields are at a limit (row %#)",
  async (fields) => {
    const { id } = await newUser(server, fields);
    for (const method of ["PATCH", "PUT"]) {
      await server.call("PUT", `/users/${id}`, { body: { email: newEmail() } });
      const { status } = await server.call(method, `/users/${id}`, { body: fields });
      expect(status).toBe(200);
      const got = (await server.call("GET", `/users/${id}`)).json.data;
      // As entries, because `toEqual` does not compare a key named `__proto__`.
      for (const [field, value] of Object.entries(fields))
        expect(Object.entries(got[field])).toEqual(Object.entries(value as object));
    }
  },
);
