// A read-only server: reads work, writes are rejected, and the database stays as it is.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { findCluster } from "../../postgres/cluster.ts";
import { withStore } from "../../support/open-store.ts";
import { againstCitus, againstPostgres } from "../backend.ts";
import { expectError, newEmail, newOrder, newUser } from "../make.ts";
import { startReplica, startServer, type TestServer } from "../server.ts";

const settings = { READ_ONLY: "true" };

/** @returns a server on the database of another one, with the same tokens */
function startReadOnly(server: TestServer): Promise<TestServer> {
  return startReplica(server.database, settings, server);
}

const reads = ["/users", "/users/1", "/orders", "/orders?user_id=1&status=pending", "/changes"];

/** @returns the responses to all reads */
async function readAll(server: TestServer): Promise<string[]> {
  const texts: string[] = [];
  for (const path of reads) {
    const { status, text } = await server.call("GET", path);
    texts.push(`${path} ${status} ${text}`);
  }
  return texts;
}

const tables = [
  "users",
  "orders",
  "tokens",
  "changes",
  "idempotency_keys",
  ...(againstPostgres ? ["change_outbox", "change_feed", "user_api"] : ["feed"]),
];

/** @returns all rows of the database. Those of PostgreSQL have the transaction that wrote them */
async function rowsOf(url: string): Promise<Record<string, unknown>> {
  const cluster = againstPostgres ? await findCluster() : null;
  const rows: Record<string, unknown> = {};
  using db = cluster !== null ? null : new Database(url, { readonly: true });
  for (const table of tables) {
    rows[table] =
      db === null
        ? await cluster?.run(url, `select xmin::text, * from ${table} order by 1, 2`)
        : db.prepare(`select * from ${table}`).all();
  }
  return rows;
}

/** @returns every kind of write */
function writesTo(order: { readonly id: number; readonly user_id: number }) {
  const item = { sku: "A-1", quantity: 1, unit_price: 100 };
  return [
    ["POST", "/users", { email: newEmail() }],
    ["PATCH", "/users/1", { name: "Bea" }],
    ["PUT", "/users/1", { email: newEmail() }],
    ["DELETE", "/users/2", undefined],
    ["POST", "/orders", { user_id: order.user_id, currency: "EUR", items: [item] }],
    ["PATCH", `/orders/${order.id}`, { status: "paid" }],
  ] as const;
}

test("a read-only server serves reads, and rejects every write of a token that may write with 503", async () => {
  await using server = await startServer();
  const { id } = await newUser(server);
  await newUser(server);
  const order = await newOrder(server, id);
  const texts = await readAll(server);
  await server.stop();
  await using readOnly = await startReadOnly(server);
  for (const [method, path, body] of writesTo(order)) {
    const response = await readOnly.call(method, path, body === undefined ? {} : { body });
    expectError(response, 503, "the server is read-only at the moment");
    expect(response.headers.get("retry-after")).toBe("1");
    // The token is checked first.
    for (const [token, status] of [
      [null, 401],
      [server.readToken, 403],
    ] as const) {
      const rejected = await readOnly.call(method, path, { token, body });
      expect([method, path, rejected.status]).toEqual([method, path, status]);
    }
  }
  expect(await readAll(readOnly)).toEqual(texts);
});

test("health, the metrics and the log say that a server is read-only", async () => {
  const gauges = async (on: TestServer) => {
    const { text } = await on.call("GET", "/metrics");
    return text.match(/^user_api_(?:writable|read_only) .*$/gm);
  };
  await using server = await startServer();
  expect((await server.call("GET", "/health")).json.data).toEqual({ status: "ok" });
  expect(await gauges(server)).toEqual(["user_api_writable 1", "user_api_read_only 0"]);
  await server.stop();
  await using readOnly = await startReadOnly(server);
  const { status, json } = await readOnly.call("GET", "/health", { token: null });
  expect([status, json]).toEqual([200, { data: { status: "read_only" }, error: null }]);
  expect(await gauges(readOnly)).toEqual(["user_api_writable 0", "user_api_read_only 1"]);
  expect(readOnly.output).toMatch(/"event":"listening".*"read_only":true/);
});

test.skipIf(againstCitus)("a read-only server changes no row of its database", async () => {
  await using server = await startServer();
  await newUser(server);
  await readAll(server);
  await server.stop();
  const rows = await rowsOf(server.database);
  await using readOnly = await startReadOnly(server);
  // The last use of the token for reads is not stored.
  await readOnly.call("GET", "/users", { token: server.readToken });
  await readOnly.call("GET", "/changes?wait=1");
  await readOnly.call("GET", "/metrics");
  await readOnly.call("GET", "/health", { token: null });
  await readOnly.call("DELETE", "/users/1");
  await readOnly.stop();
  expect(await rowsOf(server.database)).toEqual(rows);
});

test("the feed of changes continues when a read-only server has run", async () => {
  await using server = await startServer();
  await newUser(server);
  const { feed } = (await server.call("GET", "/changes")).json.meta;
  await server.stop();
  {
    await using readOnly = await startReadOnly(server);
    expect((await readOnly.call("GET", `/changes?feed=${feed}`)).json.meta.last).toBe(1);
  }
  await server.restart();
  await newUser(server);
  const { status, json } = await server.call("GET", `/changes?feed=${feed}&after=1`);
  expect([status, json.data.length, json.data[0]?.id]).toEqual([200, 1, 2]);
});

test("a read-only server rejects a token when a command has revoked it", async () => {
  await using server = await startServer();
  await server.stop();
  await using readOnly = await startReadOnly(server);
  const statusOf = async () => (await readOnly.call("GET", "/users")).status;
  expect(await statusOf()).toBe(200);
  await withStore(server.database, ({ tokens }) => tokens.revoke("write-test"));
  // PostgreSQL: within 5 seconds.
  while (againstPostgres && (await statusOf()) === 200) await Bun.sleep(50);
  expect(await statusOf()).toBe(401);
});
