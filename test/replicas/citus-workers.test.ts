// Two replicas on a Citus cluster. With TEST_CITUS_CLUSTER, nodes are killed as well.
import { expect, test } from "bun:test";
import { againstCitus } from "../http/backend.ts";
import { againstBinary } from "../http/server.ts";
import { runOnCitus } from "../postgres/citus.ts";
import { canKillNodes, killNode, startNode } from "./citus-nodes.ts";
import { contendForKeys, contendForVersions, createUser } from "./contend.ts";
import { requireExact, startLoad, untilWritten } from "./load.ts";
import { runCommand, startWorld } from "./pair.ts";

const KEYS = 200;
const POSTS = 4;
const EDITS = 40;
/** In as many buckets, so that they are on both workers. */
const ORDERS = 60;
/** Nodes are killed in turn, this often each. */
const ROUNDS = Number(Bun.env["TEST_CITUS_ROUNDS"] ?? 1);
/** Recovery of transactions in doubt takes most of it. */
const RECOVERED_MS = 30_000;
const OUTAGE_MS = 1_500;

const possible = againstBinary && againstCitus;

test.if(possible)(
  "Replicas on Citus agree on idempotency keys, edits and totals when clients use both concurrently",
  async () => {
    await using world = await startWorld();
    const { pair, database } = world;
    const user = await createUser(pair, "ann@example.com");
    await contendForKeys(pair, user["id"], KEYS, POSTS);
    await contendForVersions(pair, user, 10, 4);
    expect(await runCommand(database, "check")).toMatchObject({ code: 0 });
  },
  240_000,
);

test.if(possible)("Citus can move every distributed table to another worker", async () => {
  await using world = await startWorld();
  const immovable = await runOnCitus(
    world.database,
    `select logicalrelid::text as name
     from pg_dist_partition
     join pg_class on pg_class.oid = logicalrelid
     where partmethod = 'h'
       and relreplident <> 'f'
       and not exists (select from pg_index where indrelid = logicalrelid and indisprimary)`,
  );
  expect(immovable).toEqual([]);
});

test.if(possible)(
  "PATCH succeeds on Citus when 40 clients edit one user concurrently without If-Match",
  async () => {
    await using world = await startWorld();
    const { pair } = world;
    const { id } = await createUser(pair, "ann@example.com");
    const responses = await Promise.all(
      Array.from({ length: EDITS }, (_, at) =>
        pair.call("PATCH", `/users/${id}`, { body: { name: `${at}` } }),
      ),
    );
    expect(responses.map(({ status }) => status)).toEqual(responses.map(() => 200));
    const { json } = await pair.call("GET", `/users/${id}`);
    expect(json.data.version).toBe(EDITS + 1);
  },
  60_000,
);

test.if(possible && canKillNodes)(
  "GET /orders/:id returns 503 only for orders on the missing worker of Citus when many clients read",
  async () => {
    await using world = await startWorld();
    const { pair } = world;
    const items = [{ sku: "A-1", quantity: 1, unit_price: 1 }];
    const paths: string[] = [];
    for (let at = 0; at < ORDERS; at += 1) {
      const user = await createUser(pair, `${at}@example.com`);
      const body = { user_id: user["id"], currency: "EUR", items };
      const { json } = await pair.call("POST", "/orders", { body });
      paths.push(`/orders/${json.data.id}`);
    }
    const statusesOf = async () => {
      const responses = await Promise.all(paths.map((path) => pair.call("GET", path)));
      return responses.map(({ status }) => status);
    };
    expect(await statusesOf()).toEqual(paths.map(() => 200));
    killNode("worker1");
    const statuses = await statusesOf();
    await startNode("worker1");
    expect(new Set(statuses)).toEqual(new Set([200, 503]));
    expect(statuses.filter((status) => status === 200).length).toBeGreaterThan(ORDERS / 4);
    expect(await statusesOf()).toEqual(paths.map(() => 200));
  },
  60_000,
);

test.if(possible && canKillNodes)(
  "Acknowledged writes are stored exactly once on Citus when its nodes are killed under load",
  async () => {
    await using world = await startWorld();
    const { pair, database } = world;
    await runOnCitus(database, "alter system set citus.recover_2pc_interval = '1s'");
    await runOnCitus(database, "select pg_reload_conf()");
    const load = startLoad(pair);
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const node of ["worker1", "coordinator", "worker2"]) {
        await untilWritten(load, RECOVERED_MS);
        await Bun.sleep(500);
        killNode(node);
        await Bun.sleep(OUTAGE_MS);
        await startNode(node);
        const recoveredMs = await untilWritten(load, RECOVERED_MS);
        if (Bun.env["TEST_TIMES"] === "true") {
          const counts = { orders: load.orders.size, ...load.statuses };
          process.stderr.write(`${node}: ${recoveredMs} ms ${JSON.stringify(counts)}\n`);
        }
      }
    }
    await load.stop();
    // Between its commit on the coordinator and on a worker that was killed, an order cannot be read.
    const staleReads = load.wrong.filter((what) => what.startsWith("GET "));
    if (Bun.env["TEST_TIMES"] === "true") process.stderr.write(`${staleReads.join("\n")}\n`);
    expect(load.wrong.filter((what) => !what.startsWith("GET "))).toEqual([]);
    expect(Object.keys(load.statuses)).not.toContain("500");
    expect(load.statuses[503]).toBeGreaterThan(0);
    await Bun.sleep(3_000);
    await requireExact(pair, load);
    expect(await runCommand(database, "check")).toMatchObject({ code: 0 });
  },
  600_000,
);
