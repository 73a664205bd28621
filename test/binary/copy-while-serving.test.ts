// Runs `copy` of the binary to PostgreSQL and back while a server uses the database, and interrupts it. The records,
// tokens and idempotency keys of clients must be valid in the copy.
import { describe, expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { dirname } from "node:path";
import { newUser } from "../http/make.ts";
import { againstBinary, startServer, type TestServer } from "../http/server.ts";
import { cluster, makeHarness, patient } from "../postgres/postgres-harness.ts";
import { binary, runBinary, startProgram } from "../support/program.ts";

const startCopy = (...args: string[]) => startProgram([binary, "copy", ...args]);

/** @returns a function that sends an order with a key, and the token of the first server, to a server */
async function prepareOrder(first: TestServer) {
  const { id } = await newUser(first);
  const items = [{ sku: "tea-01", quantity: 2, unit_price: 1999 }];
  return (server: TestServer) =>
    server.call("POST", "/orders", {
      body: { user_id: id, currency: "EUR", items },
      headers: { "Idempotency-Key": "7f3c" },
      token: first.writeToken,
    });
}

describe.if(againstBinary && cluster !== null)("copy", () => {
  test("copies a database to PostgreSQL and back while a server uses it", async () => {
    await using first = await startServer();
    await using postgres = await makeHarness(true);
    const order = await prepareOrder(first);
    const placed = await order(first);
    expect(placed.status).toBe(201);
    const counts = ": 1 user, 1 order, 2 tokens, 1 idempotency key, 0 import keys and 2 changes";

    const copied = runBinary(["copy", "--database-url", first.database, "--to", postgres.url]);
    expect(await copied).toEqual({
      code: 0,
      stdout: expect.stringContaining(counts),
      stderr: `A server is using ${first.database}: what it writes after the copy has started is not copied\n`,
    });
    await using second = await startServer({ DATABASE_URL: postgres.url });
    const back = `${first.database}.back`;
    const returned = runBinary(["copy", "--database-url", postgres.url, "--to", back]);
    expect((await returned).stdout).toContain(counts);
    await using third = await startServer({ DATABASE_URL: back });

    for (const server of [second, third]) {
      const again = await order(server);
      expect([again.status, again.text]).toEqual([201, placed.text]);
      expect(again.headers.get("idempotent-replayed")).toBe("true");
      const next = await server.call("POST", "/users", {
        body: { email: "next@example.com" },
        token: first.writeToken,
      });
      expect([next.status, next.json.data.id]).toEqual([201, 2]);
      const rejected = await server.call("GET", "/users", { token: null });
      expect(rejected.status).toBe(401);
    }
  }, 60_000);

  test("leaves no rows when SIGINT interrupts it", async () => {
    await using server = await startServer();
    await using postgres = await makeHarness();
    await newUser(server);
    const waiting = () =>
      postgres.run(`
        select from pg_stat_activity
        where wait_event_type = 'Lock' and datname = current_database()
      `);

    const held = await postgres.hold("lock table users in share mode");
    const target = `${postgres.url}${patient}`;
    const there = startCopy("--database-url", server.database, "--to", target);
    while ((await waiting()).length === 0) await Bun.sleep(5);
    there.kill("SIGINT");
    await Bun.sleep(100);
    await held.commit();
    const outcome = await there.ended;
    expect([outcome.code, outcome.stdout]).toEqual([1, ""]);
    expect(outcome.stderr).toEndWith(": interrupted\n");
    expect(await postgres.run("select id from users union select id from tokens")).toEqual([]);

    await (await postgres.open()).users.create(
      { email: "a@example.com", name: null, metadata: {} },
      null,
    );
    const locked = await postgres.hold("lock table orders in access exclusive mode");
    const back = `${server.database}.back`;
    const returning = startCopy("--database-url", postgres.url, "--to", back);
    while ((await waiting()).length === 0) await Bun.sleep(5);
    returning.kill("SIGINT");
    await Bun.sleep(100);
    await locked.commit();
    expect((await returning.ended).stderr).toBe(`Cannot copy to ${back}: interrupted\n`);
    expect(readdirSync(dirname(back)).filter((name) => name.includes("back"))).toEqual([]);
  }, 60_000);
});
