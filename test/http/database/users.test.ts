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
  expect(response.headers.get("content-type")).toBe("application/json");
  expect(Object.keys(response.json).sort()).toEqual(["data", "error"]);
  expect(response.json.error).toBeNull();
  const user = response.json.data;
  expect(user).toEqual({
    ...{ id: user.id, email, reference: null, name: null, metadata: {}, version: 1 },
    ...{ created_at: expect.stringMatching(timeFormat), updated_at: user.created_at },
  });
  expect(Number.isSafeInteger(user.id) && user.id >= 1).toBe(true);
  expect(response.headers.get("location")).toBe(`/api/v1/users/${user.id}`);
  expect(response.headers.get("etag")).toBe('"1"');
  const got = await server.call("GET", `/users/${user.id}`);
  expect(got.status).toBe(200);
  expect(got.headers.get("content-type")).toBe("application/json");
  expect(got.headers.get("etag")).toBe('"1"');
  expect(got.headers.get("cache-control")).toBe("private, no-cache");
  expect(got.json).toEqual({ data: user, error: null });
});

// More are in user.test.ts.
for (const [typed, other] of [
  ["Anne+tag", "aNNE+TAG"],
  ["𐐨αςασ", "𐐀ΑΣΑΣ"],
]) {
  const host = `${crypto.randomUUID()}.bücher.example`;
  const email = `${typed}@${host}`;
  const same = `${other}@${host.toUpperCase()}`;

  test(`email selects the one user in any spelling when it is ${typed}`, async () => {
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
    for (const method of ["PATCH", "PUT"]) {
      const own = await server.call(method, `/users/${user.id}`, { body: { email: same } });
      expect(own.json.data).toMatchObject({ id: user.id, email: same });
    }
  });
}

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

const moved = newEmail();
const full = { name: "Anne", metadata: { a: "1", b: "2" } };
for (const { name, body, changed } of [
  { name: "email is given", body: { email: moved }, changed: { email: moved } },
  { name: "name is null", body: { name: null }, changed: { name: null } },
  { name: "metadata is null", body: { metadata: null }, changed: { metadata: {} } },
  {
    name: "metadata sets one key and clears another",
    body: { metadata: { a: null, c: "3", gone: null } },
    changed: { metadata: { b: "2", c: "3" } },
  },
]) {
  test(`PATCH /users/:id changes only the given fields when ${name}`, async () => {
    const user = await newUser(server, full);
    const response = await server.call("PATCH", `/users/${user.id}`, { body });
    expect(response.status).toBe(200);
    expect(response.headers.get("etag")).toBe('"2"');
    const { updated_at } = response.json.data;
    expect(updated_at).toMatch(timeFormat);
    expect(updated_at >= user.updated_at).toBe(true);
    expect(response.json).toEqual({
      data: { ...user, ...changed, version: 2, updated_at },
      error: null,
    });
    expect((await server.call("GET", `/users/${user.id}`)).json).toEqual(response.json);
  });
}

test("PATCH and PUT of a user change nothing, not even the version, when every field stays as it is", async () => {
  const user = await newUser(server, full);
  const { email, name, metadata } = user;
  for (const [method, body] of [
    ["PATCH", {}],
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

test("PUT /users/:id resets omitted optional fields", async () => {
  const user = await newUser(server, full);
  const body = { email: newEmail() };
  const response = await server.call("PUT", `/users/${user.id}`, { body });
  expect(response.status).toBe(200);
  expect(response.headers.get("etag")).toBe('"2"');
  const { updated_at } = response.json.data;
  const data = { ...user, ...body, name: null, metadata: {}, version: 2, updated_at };
  expect(response.json).toEqual({ data, error: null });
  // The previous email is free.
  await newUser(server, { email: user.email });
  const again = await server.call("PUT", `/users/${user.id}`, { body: { ...body, ...full } });
  expect(again.json.data).toMatchObject({
    ...body,
    ...full,
    version: 3,
    created_at: user.created_at,
  });
  expect((await server.call("GET", `/users/${user.id}`)).json).toEqual(again.json);
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
  const found = await server.call("GET", `/users?email=${encodeURIComponent(user.email)}`);
  expect(found.json.meta.total).toBe(0);
  const next = await newUser(server, { email: user.email });
  expect(next.id).toBeGreaterThan(user.id);
});

const badId = "Validation failed: id must be a positive integer";
test("a user is not found when the id is not canonical, or larger than any", async () => {
  await newUser(server);
  const before = await stored(server, "/users?limit=1000");
  for (const [id, status, error] of [
    ..."0 -1 +1 01 1.0 0x1 1e0 %201 1%20 1%00 abc 1,2 %D9%A1"
      .split(" ")
      .map((id) => [id, 400, badId] as const),
    ...["9007199254740993", "9223372036854775808", "1".repeat(30)].map(
      (id) => [id, 404, "user not found"] as const,
    ),
  ] as const) {
    for (const method of ["GET", "PATCH", "PUT", "DELETE"]) {
      const body = method === "PATCH" || method === "PUT" ? { email: newEmail() } : undefined;
      expectError(await server.call(method, `/users/${id}`, { body }), status, error);
    }
  }
  expect(await stored(server, "/users?limit=1000")).toEqual(before);
});

const accepted: Fields[] = [
  { email: longEmail(254), name: emoji.repeat(200), metadata: metadataOf(50) },
  // Kept as typed: no trimming, no normalising.
  {
    email: newEmail(),
    name: ' \ufeff\u0001\u2028e\u0301\ufffd"\\/\n',
    metadata: { [emoji.repeat(40)]: emoji.repeat(500) },
  },
  {
    email: newEmail(),
    name: "n",
    metadata: { constructor: "c", ["__proto__"]: "p", toString: "", "a.b[0]": "d" },
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
