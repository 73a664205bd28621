/** Calls every operation of the OpenAPI document, for every status that a client can cause. */
import { document, exampleCodes } from "./documented.ts";
import { newEmail, newOrder, newUser } from "./make.ts";
import { type CallOptions, createToken, startServer, type TestServer } from "./server.ts";

type Call = readonly [operation: string, path: string, options?: CallOptions];

const ifMatch = (tag: string) => ({ "if-match": tag });
const NEVER = ifMatch('"99"');
const key = (name: string) => ({ "idempotency-key": name });

/** In this order, because later calls depend on earlier ones. */
async function callsTo(server: TestServer): Promise<Call[]> {
  const user = await newUser(server, { name: "Ann", metadata: { team: "blue" } });
  const lone = await newUser(server, { reference: "K-0" });
  const order = await newOrder(server, user.id);
  const email = newEmail();
  const items = [{ sku: "A-1", name: "Tea", quantity: 2, unit_price: 1999 }];
  const placed = { user_id: user.id, currency: "EUR", items };
  const [oneUser, oneOrder] = [`/users/${user.id}`, `/orders/${order.id}`];
  return [
    ["listUsers", "/users?limit=1&offset=1"],
    ["createUser", "/users", { body: { email }, headers: key("a") }],
    ["createUser", "/users", { body: { email: newEmail() }, headers: key("a") }],
    ["createUser", "/users", { body: { email: email.toUpperCase() } }],
    ["createUser", "/users", { body: { email: newEmail(), reference: "K-0" } }],
    ["getUser", oneUser],
    ["getUser", oneUser, { headers: { "if-none-match": '"1"' } }],
    ["getUser", oneUser, { headers: NEVER }],
    ["getUser", "/users/999999"],
    ["listChangesOfUser", `${oneUser}/changes?sort=-id`],
    ["listChangesOfUser", "/users/999999/changes"],
    ["updateUser", oneUser, { body: { name: null, metadata: { team: null } } }],
    ["replaceUser", oneUser, { body: { email: newEmail() } }],
    ...["updateUser", "replaceUser"].flatMap((operation): Call[] => [
      [operation, oneUser, { body: { email } }],
      [operation, oneUser, { body: { email: newEmail(), reference: "K-0" } }],
      [operation, oneUser, { body: { email: newEmail() }, headers: NEVER }],
      [operation, oneUser, { body: { email: newEmail() }, headers: key("a") }],
      [operation, "/users/999999", { body: { email: newEmail() } }],
    ]),
    ["deleteUser", oneUser],
    ["deleteUser", oneUser, { headers: NEVER }],
    ["deleteUser", oneUser, { headers: key("a") }],
    ["deleteUser", `/users/${lone.id}`, { headers: ifMatch('"1"') }],
    ["deleteUser", `/users/${lone.id}`],
    ["listOrders", `/orders?user_id=${user.id}&status=pending&limit=1`],
    ["createOrder", "/orders", { body: placed, headers: key("b") }],
    ["createOrder", "/orders", { body: { ...placed, currency: "CHF" }, headers: key("b") }],
    ["createOrder", "/orders", { body: { ...placed, reference: "1042" } }],
    ["createOrder", "/orders", { body: { ...placed, reference: "1042" } }],
    ["sumOrders", "/orders/sums?created_from=2026-01-01T00:00:00Z&created_to=2026-02-01T00:00:00Z"],
    ["getOrder", oneOrder],
    ["getOrder", oneOrder, { headers: { "if-none-match": "*" } }],
    ["getOrder", oneOrder, { headers: NEVER }],
    ["getOrder", "/orders/-1"],
    ["listChangesOfOrder", `${oneOrder}/changes?after=1`],
    ["listChangesOfOrder", "/orders/-1/changes"],
    ["updateOrder", oneOrder, { body: { status: "paid", metadata: { note: "x" } } }],
    ["updateOrder", oneOrder, { body: { status: "delivered" } }],
    ["updateOrder", oneOrder, { body: { refunded: 999_999 } }],
    ["updateOrder", oneOrder, { body: { reference: "1042" } }],
    ["updateOrder", oneOrder, { body: { refunded: 1 }, headers: key("c") }],
    ["updateOrder", oneOrder, { body: { refunded: 2 }, headers: key("c") }],
    ["updateOrder", oneOrder, { body: {}, headers: NEVER }],
    ["updateOrder", "/orders/999999", { body: {} }],
    ["listChanges", "/changes?after=1&limit=2&include=record"],
    ["listChanges", "/changes?feed=other"],
    ["listChanges", "/changes?after=999999"],
    ["getHealth", "/health", { token: null }],
    ["getMetrics", "/metrics"],
    ["getOpenapi", "/openapi.json", { token: null }],
  ];
}

/** @returns the operations of the document, each with a matching path */
export function operations() {
  return Object.entries(document.paths).flatMap(([template, methods]) =>
    Object.entries(methods).map(([method, definition]) => ({
      operation: definition.operationId,
      definition,
      method: method.toUpperCase(),
      template: template.replace("/api/v1", ""),
      path: template.replace("/api/v1", "").replace("{id}", "1"),
      statuses: new Set(Object.keys(definition.responses).map(Number)),
      conflicts: exampleCodes(definition.responses[409]?.content?.["application/json"]),
      /** `null` if it is public. */
      scopes: definition.security[0]?.["token"] ?? null,
    })),
  );
}

const type = (value: string) => ({ "content-type": value });

/** The errors that all operations with the same status share. @param token lacks a scope of the operation */
function common(
  { operation, path, statuses }: ReturnType<typeof operations>[0],
  token: string,
): Call[] {
  const calls: Call[] = [[operation, `${path}?nope=1`]];
  calls.push([operation, path, { headers: { expect: "nothing" } }]);
  if (statuses.has(401)) {
    calls.push([operation, path, { token: null }], [operation, path, { token: "uat_nobody" }]);
  }
  if (statuses.has(403)) calls.push([operation, path, { token }]);
  if (statuses.has(413)) {
    calls.push([operation, path, { raw: " ".repeat(70_000), headers: type("application/json") }]);
    calls.push([operation, path, { raw: "a=b", headers: type("text/plain") }]);
  }
  return calls;
}

/** Makes all calls, on its own servers. @returns each operation with the status of a response, and the code of a 409 */
export async function exercise(): Promise<string[]> {
  await using server = await startServer();
  await using limited = await startServer({ RATE_LIMIT: "1" });
  const listed = operations();
  const seen: string[] = [];
  const send = async (at: TestServer, method: string, ...[operation, path, options]: Call) => {
    const { status, json } = await at.call(method, path, options);
    seen.push(`${operation} ${status}${status === 409 ? ` ${json.meta.code}` : ""}`);
  };
  const ofUsers = await createToken(server.database, "users", "users:write");
  const ofOrders = await createToken(server.database, "orders", "orders:write");
  const methodOf = (name: string) =>
    listed.find(({ operation }) => operation === name)?.method ?? "GET";

  for (const call of await callsTo(server)) await send(server, methodOf(call[0]), ...call);
  for (const one of listed) {
    const token = one.path.startsWith("/users") ? ofOrders : ofUsers;
    for (const call of common(one, token)) await send(server, one.method, ...call);
    await send(server, "OPTIONS", one.operation, one.path);
    if (one.method === "GET") await send(server, "HEAD", one.operation, one.path);
    if (!one.statuses.has(429)) continue;
    // The second request within a second exceeds the rate.
    while (!seen.includes(`${one.operation} 429`)) {
      await send(limited, one.method, one.operation, one.path);
    }
  }
  return seen;
}
