// A read-only server: reads work, writes are rejected, and the database stays as it is.
import { afterAll, expect, test } from "bun:test";
import { type CopySource, copiedTables } from "../../../src/domain/copy.ts";
import { withStore } from "../../support/open-store.ts";
import { operations } from "../exercise.ts";
import { expectError, newOrder, newUser, stored } from "../make.ts";
import { startReplica, startServer, type TestServer } from "../server.ts";

const reads = ["/users", "/users/1", "/orders", "/orders?user_id=1&status=pending", "/changes"];
const readAll = (on: TestServer) => stored(on, ...reads);

/** @returns all rows of the database */
function rowsOf(url: string): Promise<unknown[]> {
  const read = (snapshot: CopySource) => {
    const tables = Object.keys(copiedTables) as Parameters<CopySource["read"]>[0][];
    return Promise.all(tables.map((table) => Array.fromAsync(snapshot.read(table))));
  };
  return withStore(url, (store) => store.withCopySource(read), { mode: "read" });
}

const gauges = async (on: TestServer) =>
  (await on.call("GET", "/metrics")).text.match(/^user_api_(?:writable|read_only) .*$/gm);

const server = await startServer();
const { id } = await newUser(server);
await newUser(server);
await newOrder(server, id);
const texts = await readAll(server);
const { feed } = (await server.call("GET", "/changes")).json.meta;
const gaugesBefore = await gauges(server);
await server.stop();
const rows = await rowsOf(server.database);
const readOnly = await startReplica(server.database, { READ_ONLY: "true" }, server);
afterAll(async () => {
  await readOnly[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
});

test("a read-only server serves reads, and rejects every write of a token that may write with 503", async () => {
  for (const { method, path } of operations().filter((one) => one.method !== "GET")) {
    const response = await readOnly.call(method, path);
    expectError(response, 503, "the server is read-only at the moment");
    expect(response.headers.get("retry-after")).toBe("2");
    // The token is checked first.
    for (const [token, status] of [
      [null, 401],
      [server.readToken, 403],
    ] as const) {
      const rejected = await readOnly.call(method, path, { token });
      expect([method, path, rejected.status]).toEqual([method, path, status]);
    }
  }
  expect(await readAll(readOnly)).toEqual(texts);
});

test("health, the metrics and the log say that a server is read-only", async () => {
  expect(gaugesBefore).toEqual(["user_api_writable 1", "user_api_read_only 0"]);
  const { status, json } = await readOnly.call("GET", "/health", { token: null });
  expect([status, json]).toEqual([200, { data: { status: "read_only" }, error: null }]);
  expect((await readOnly.call("GET", "/health?primary")).status).toBe(503);
  expect(await gauges(readOnly)).toEqual(["user_api_writable 0", "user_api_read_only 1"]);
  expect(readOnly.output).toMatch(/"event":"listening".*"read_only":true/);
});

test("a read-only server changes no row, and the feed of changes continues when it has run", async () => {
  // The last use of the token for reads is not stored.
  await readOnly.call("GET", "/users", { token: server.readToken });
  await readOnly.call("GET", "/changes?wait=1");
  expect((await readOnly.call("GET", `/changes?feed=${feed}`)).json.meta.last).toBe(3);
  await readOnly.stop();
  expect(await rowsOf(server.database)).toEqual(rows);
  await server.restart();
  await newUser(server);
  const { status, json } = await server.call("GET", `/changes?feed=${feed}&after=3`);
  expect([status, json.data.length, json.data[0]?.id]).toEqual([200, 1, 4]);
  await server.stop();
});
