// Two replicas on a Citus cluster. With TEST_CITUS_CLUSTER, nodes are killed as well.
import { test as anyTest, expect } from "bun:test";
import { againstCitus } from "../http/backend.ts";
import { againstBinary, type TestResponse } from "../http/server.ts";
import { makePlainDatabase } from "../postgres/citus.ts";
import { runOn } from "../postgres/instance.ts";
import { makeDirectory } from "../support/directory.ts";
import { fillDatabase } from "../support/fill.ts";
import { isLong } from "../support/long.ts";
import { binary, startProgram } from "../support/program.ts";
import { canKillNodes, killNode, startNode } from "./citus-nodes.ts";
import { createUser, runCommand, startPair } from "./pair.ts";

/** Enough that both workers have some of their orders. */
const USERS = 16;
/** A request that hangs takes longer: it ends by the timeouts of a connection and of a statement at the latest. */
const ANSWERED_MS = 25_000;
const COPIES = 3;
const WRITERS = 12;

const possible = againstBinary && againstCitus;
const test = anyTest.if(possible);
const items = [{ sku: "A-1", quantity: 1, unit_price: 100 }];

anyTest.if(possible && canKillNodes)(
  "only what is on a missing worker of Citus returns 503, and no request hangs",
  async () => {
    await using pair = await startPair();
    const orders: { id: number; user_id: number }[] = [];
    const place = (userId: number) =>
      pair.call("POST", "/orders", { body: { user_id: userId, currency: "EUR", items } });
    for (let at = 0; at < USERS; at += 1) {
      const user = await createUser(pair, `${at}@example.com`);
      orders.push((await place(user["id"])).json.data);
    }
    const statusesOf = async (...calls: Promise<TestResponse>[]) =>
      `${(await Promise.all(calls)).map(({ status }) => status)}`;
    /** @returns the statuses of the requests for each order, and those of others */
    const statuses = async () => {
      const startedMs = performance.now();
      const patch = { body: { metadata: { at: `${startedMs}` } } };
      const ofOrders = orders.map(({ id, user_id }) =>
        statusesOf(
          pair.call("GET", `/orders/${id}`),
          pair.call("GET", `/orders?user_id=${user_id}`),
          pair.call("PATCH", `/orders/${id}`, patch),
          place(user_id),
          pair.call("GET", `/users/${user_id}`),
        ),
      );
      const others = statusesOf(
        ...["/users", "/changes", "/orders"].map((path) => pair.call("GET", path)),
        pair.call("POST", "/users", { body: { email: `${startedMs}@example.com` } }),
      );
      const all = [new Set(await Promise.all(ofOrders)), await others];
      expect(performance.now() - startedMs).toBeLessThan(ANSWERED_MS);
      return all;
    };
    const there = "200,200,200,201,200";
    const everywhere = [new Set([there]), "200,200,200,201"];
    expect(await statuses()).toEqual(everywhere);
    killNode("worker1");
    const missing = [new Set([there, "503,503,503,503,200"]), "200,200,503,503"];
    const found = await statuses();
    await startNode("worker1");
    expect(found).toEqual(missing);
    expect(await statuses()).toEqual(everywhere);
  },
  180_000,
);

test("copy of a Citus cluster is consistent, or fails, when clients write meanwhile", async () => {
  using directory = makeDirectory();
  await using pair = await startPair();
  const { database } = pair;
  let isOver = false;
  const writing = Array.from({ length: WRITERS }, async (_, writer) => {
    for (let at = 0; !isOver; at += 1) {
      const user = await createUser(pair, `${writer}.${at}@example.com`);
      const body = { user_id: user["id"], currency: "EUR", items };
      expect((await pair.call("POST", "/orders", { body })).status).toBe(201);
    }
  });
  for (let at = 0; at < COPIES; at += 1) {
    const path = directory.at(`${at}.db`);
    const copied = await runCommand(database, "copy", "--to", path);
    if (copied.code === 0) expect(await runCommand(path, "check")).toMatchObject({ code: 0 });
    else expect(copied.stderr).toMatch(/^Cannot copy to [^\n]+\n$/);
  }
  isOver = true;
  await Promise.all(writing);
}, 180_000);

anyTest.if(possible && isLong)(
  "migrate --distribute leaves a database as it was when it is killed",
  async () => {
    await using plain = await makePlainDatabase();
    const { databaseUrl } = plain;
    const run = (...args: string[]) => runCommand(databaseUrl, ...args);
    await fillDatabase(databaseUrl, 100, 5000);
    await plain.addWorkers();
    const exported = await run("export", "orders");
    for (const step of ["create_reference_table", "create_distributed_table"]) {
      const env = { DATABASE_URL: databaseUrl };
      const program = startProgram([binary, "migrate", "--distribute"], { env });
      const active = `select from pg_stat_activity where state = 'active' and query like 'select pg_catalog.${step}%'`;
      while ((await runOn(databaseUrl, active)).length === 0) await Bun.sleep(1);
      program.kill("SIGKILL");
      await program.ended;
      // The server ends the transaction after its statement.
      while ((await run("check")).code !== 0) await Bun.sleep(100);
      const index = "select to_regclass('order_index') as index";
      expect(await runOn<object>(databaseUrl, index)).toEqual([{ index: null }]);
    }
    expect(await run("migrate", "--distribute")).toMatchObject({ code: 0 });
    expect(await run("check")).toMatchObject({ code: 0 });
    expect(await run("export", "orders")).toEqual(exported);
  },
  180_000,
);
