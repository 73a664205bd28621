// Two replicas on a Citus cluster. With TEST_CITUS_CLUSTER, nodes are killed as well.
import { expect, test } from "bun:test";
import { againstCitus } from "../http/backend.ts";
import { againstBinary, type TestResponse } from "../http/server.ts";
import { makePlainDatabase } from "../postgres/citus.ts";
import { runOn } from "../postgres/instance.ts";
import { makeDirectory } from "../support/directory.ts";
import { fillDatabase } from "../support/fill.ts";
import { isLong } from "../support/long.ts";
import { binary, startProgram } from "../support/program.ts";
import { canKillNodes, killNode, startNode } from "./citus-nodes.ts";
import { createUser } from "./contend.ts";
import { runCommand, startWorld } from "./pair.ts";

/** Enough that both workers have some of their orders. */
const USERS = 16;
/** A request that hangs takes longer: it ends by the timeouts of a connection and of a statement at the latest. */
const ANSWERED_MS = 25_000;
const COPIES = 3;
const WRITERS = 12;

const possible = againstBinary && againstCitus;
const items = [{ sku: "A-1", quantity: 1, unit_price: 100 }];

test.if(possible && canKillNodes)(
  "only what is on a missing worker of Citus returns 503, and no request hangs",
  async () => {
    await using world = await startWorld();
    const { pair } = world;
    const orders: { id: number; user_id: number }[] = [];
    const place = (userId: number) =>
      pair.call("POST", "/orders", { body: { user_id: userId, currency: "EUR", items } });
    for (let at = 0; at < USERS; at += 1) {
      const user = await createUser(pair, `${at}@example.com`);
      orders.push((await place(user["id"])).json.data);
    }
    const post = (at: number) =>
      pair.call("POST", "/users", { body: { email: `new${at}@example.com` } });
    /** @returns the statuses for each order, and those of other requests */
    const statuses = async () => {
      const startedMs = performance.now();
      const statusOf = async (response: Promise<TestResponse>) => (await response).status;
      const metadata = { at: `${startedMs}` };
      const ofOrders = await Promise.all(
        orders.map(({ id, user_id }) =>
          Promise.all([
            statusOf(pair.call("GET", `/orders/${id}`)),
            statusOf(pair.call("GET", `/orders?user_id=${user_id}`)),
            statusOf(pair.call("PATCH", `/orders/${id}`, { body: { metadata } })),
            statusOf(place(user_id)),
            statusOf(pair.call("GET", `/users/${user_id}`)),
          ]),
        ),
      );
      const others = ["/users", "/changes", "/orders"].map((path) =>
        statusOf(pair.call("GET", path)),
      );
      const all = [...others, statusOf(post(startedMs))];
      const ofOthers = await Promise.all(all);
      expect(performance.now() - startedMs).toBeLessThan(ANSWERED_MS);
      return { ofOrders, ofOthers };
    };
    const there: readonly number[] = [200, 200, 200, 201, 200];
    const everywhere = { ofOrders: orders.map(() => there), ofOthers: [200, 200, 200, 201] };
    expect<object>(await statuses()).toEqual(everywhere);
    killNode("worker1");
    const { ofOrders, ofOthers } = await statuses();
    await startNode("worker1");
    const missing = [503, 503, 503, 503, 200];
    expect(new Set(ofOrders.map(String))).toEqual(new Set([`${there}`, `${missing}`]));
    expect(ofOthers).toEqual([200, 200, 503, 503]);
    expect<object>(await statuses()).toEqual(everywhere);
  },
  180_000,
);

test.if(possible)(
  "copy of a Citus cluster is consistent, or fails, when clients write meanwhile",
  async () => {
    using directory = makeDirectory();
    await using world = await startWorld();
    const { pair, database } = world;
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
  },
  180_000,
);

test.if(possible && isLong)(
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
