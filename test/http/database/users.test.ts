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

test("GET /users?email reads + as a plus sign, and returns 400 when it is no email", async () => {
  const plus = await newUser(server, { email: `a+b-${crypto.randomUUID()}@example.com` });
  expect((await server.call("GET", `/users?email=${plus.email}`)).json.data).toEqual([plus]);
  for (const bad of ["", "nobody-at-all", "a%00b@example.com", "a%20b@example.com"]) {
    const response = await server.call("GET", `/users?email=${bad}`);
    expectError(response, 400, /^Validation failed: email must /, "nobody-at-all");
  }
});

const [moved, other] = [newEmail(), newEmail()];
const full = { name: "Anne", metadata: { a: "1", b: "2" } };
const merged = { a: null, c: "3", gone: null };
/** PUT has the email of the user if the row has none. */
test.each<[when: string, method: string, body: Fields, changed: Fields]>([
  ["PATCH has an email", "PATCH", { email: moved }, { email: moved }],
  ["PATCH has null as name", "PATCH", { name: null }, { name: null }],
  ["PATCH has null as reference", "PATCH", { reference: null }, { reference: null }],
  ["PATCH has null as metadata", "PATCH", { metadata: null }, { metadata: {} }],
  ["PATCH has keys", "PATCH", { metadata: merged }, { metadata: { b: "2", c: "3" } }],
  ["PATCH has what is stored", "PATCH", { name: "Anne", metadata: { a: "1", gone: null } }, {}],
  ["PUT omits fields", "PUT", { email: other }, { email: other, name: null, metadata: {} }],
  ["PUT has null as reference", "PUT", { ...full, reference: null }, { reference: null }],
  ["PUT has what is stored", "PUT", { name: "Anne", metadata: { b: "2", a: "1" } }, {}],
])(
  "a user has the given fields, resets only what is omitted by PUT, and has a new version if it is changed, when %s",
  async (_when, method, fields, changed) => {
    const user = await newUser(server, { ...full, reference: crypto.randomUUID() });
    const body = method === "PUT" ? { email: user.email, ...fields } : fields;
    const response = await server.call(method, `/users/${user.id}`, { body });
    const version = Object.keys(changed).length === 0 ? 1 : 2;
    expect([response.status, response.headers.get("etag")]).toEqual([200, `"${version}"`]);
    const { updated_at } = response.json.data;
    expect(updated_at).toMatch(timeFormat);
    expect(updated_at >= user.updated_at).toBe(true);
    const data = { ...user, ...changed, version, ...(version === 2 && { updated_at }) };
    expect(response.json).toEqual({ data, error: null });
    expect((await server.call("GET", `/users/${user.id}`)).json).toEqual(response.json);
  },
);

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
