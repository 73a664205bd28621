import { expect, test } from "bun:test";
import { document } from "./documented.ts";
import { operations } from "./exercise.ts";
import { expectError, newOrder, newUser, stored } from "./make.ts";
import { createToken, startSharedServer } from "./server.ts";

const server = await startSharedServer();
const user = await newUser(server);
await newOrder(server, user.id);

/** All records, to show that a rejected request changed nothing. */
const state = () => stored(server, "/users?limit=1000", "/orders?limit=1000");

/** What an operation needs; `null` if it is public. */
const neededScopes: Record<string, readonly string[] | null> = {
  listUsers: ["users:read"],
  getUser: ["users:read"],
  createUser: ["users:write"],
  updateUser: ["users:write"],
  replaceUser: ["users:write"],
  deleteUser: ["users:write"],
  listOrders: ["orders:read"],
  getOrder: ["orders:read"],
  createOrder: ["orders:write"],
  updateOrder: ["orders:write"],
  listChanges: ["users:read", "orders:read"],
  getMetrics: [],
  getHealth: null,
  getOpenapi: null,
};
const [usersRead, usersWrite] = [["users:read"], ["users:read", "users:write"]];
const [ordersRead, ordersWrite] = [["orders:read"], ["orders:read", "orders:write"]];

test.each<[scope: string, granted: string[]]>([
  ["read", [...usersRead, ...ordersRead]],
  ["write", [...usersWrite, ...ordersWrite]],
  ["users:read", usersRead],
  ["users:write", usersWrite],
  ["orders:read", ordersRead],
  ["orders:write", ordersWrite],
  ["orders:write,users:read", [...usersRead, ...ordersWrite]],
  ["read,users:write", [...usersWrite, ...ordersRead]],
])(
  "a token of scope %s may do what it has the scopes for, and otherwise gets a 403 that names those it lacks",
  async (scope, granted) => {
    const token = await createToken(server.database, `scope ${scope}`, scope);
    const before = await state();
    for (const { operation, method, path } of operations()) {
      const missing = (neededScopes[operation] ?? []).filter((each) => !granted.includes(each));
      // No record has the id, and the body is not complete: nothing changes if the token is accepted.
      const [at, body] = [path.replace("1", "0"), method === "GET" ? undefined : {}];
      const response = await server.call(method, at, { token, body });
      const { status, headers } = response;
      if (missing.length === 0) expect([200, 400, 404], operation).toContain(status);
      else {
        expectError(response, 403, `this token lacks the scope ${missing.join(" and ")}`);
        const challenge = `Bearer error="insufficient_scope", scope="${missing.join(" ")}"`;
        expect(headers.get("www-authenticate")).toBe(challenge);
      }
      if (method !== "GET") continue;
      expect((await server.call("HEAD", at, { token })).status, operation).toBe(status);
    }
    expect(await state()).toEqual(before);
  },
);

test("the document has the scopes of each operation", () => {
  const documented = Object.values(document.paths)
    .flatMap((methods) => Object.values(methods))
    .map(({ operationId, security }) => [operationId, security[0]?.["token"] ?? null]);
  expect(Object.fromEntries(documented)).toEqual(neededScopes);
});
