import { expect, test } from "bun:test";
import { holdWrites } from "../backend.ts";
import { newEmail, newUser } from "../make.ts";
import { startServer } from "../server.ts";

test("a write returns 503 with Retry-After when too many are queued, while reads succeed", async () => {
  await using server = await startServer({ MAX_PENDING_WRITES: "4" });
  const user = await newUser(server);
  // Another process writes, so that writes of the server wait.
  const other = await holdWrites(server.database);

  const emails = Array.from({ length: 12 }, newEmail);
  const posts = emails.map((email) => server.call("POST", "/users", { body: { email } }));
  const rejected = await Promise.race(posts);
  expect(rejected.status).toBe(503);
  expect(rejected.headers.get("retry-after")).toBe("1");
  expect(rejected.json).toEqual({
    data: null,
    error: expect.any(String),
    meta: { code: "unavailable" },
  });
  expect((await server.call("GET", `/users/${user.id}`)).status).toBe(200);
  expect((await server.call("GET", "/users")).json.meta.total).toBe(1);

  await other[Symbol.asyncDispose]();
  const statuses = (await Promise.all(posts)).map(({ status }) => status);
  expect(new Set(statuses)).toEqual(new Set([201, 503]));
  const made = statuses.filter((status) => status === 201).length;
  // Recording the use of the token may have been one of the four waiting writes.
  expect(made).toBeWithin(3, 5);
  expect((await server.call("GET", "/users")).json.meta.total).toBe(1 + made);
});
