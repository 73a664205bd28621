// The contract as a model, on two replicas, while the servers of their database are killed, and frozen.
import { test } from "bun:test";
import { connect } from "../../src/postgres/server/connection.ts";
import { oneServer } from "../../src/postgres/server/placement.ts";
import { migrate, migrations } from "../../src/postgres/whole/migrate.ts";
import { againstCitus } from "../http/backend.ts";
import { againstBinary } from "../http/server.ts";
import { playHistories } from "../model/contract/server-port.ts";
import { releaseCitusDatabase, takeCitusDatabase } from "../postgres/citus.ts";
import { findPrograms, runOn, startInstance } from "../postgres/instance.ts";
import { isLong } from "../support/long.ts";
import { canKillNodes, killNode, recoverOften, startNode } from "./citus-nodes.ts";
import { possible } from "./pair.ts";

const HISTORIES = Number(Bun.env["CONTRACT_HISTORIES"] ?? (isLong ? 2 : 1));
const OUTAGE_MS = 200;

/** Some, so that transactions of one process are interrupted while those of another go on. */
async function terminateBackends(database: string): Promise<void> {
  await runOn(
    database,
    `select pg_terminate_backend(pid) from pg_stat_activity
      where application_name like 'user-api%' and random() < 0.5`,
  );
}

/** As a later version does, which adds a column to each table. */
async function upgrade(databaseUrl: string): Promise<void> {
  const db = connect({ databaseUrl }, oneServer.settings);
  const tables = ["users", "orders", "tokens", "changes", "idempotency_keys"];
  const newer = [
    ...migrations,
    tables.map((table) => `alter table ${table} add column later text`),
  ];
  await migrate(db, { create: true, mode: "serve" }, newer);
  await db.close();
}

const programs = findPrograms();

test.if(possible && programs !== null)(
  "histories keep all promises while PostgreSQL is killed, and the schema upgraded",
  async () => {
    await using instance = await startInstance(programs ?? "", { fsync: "off" });
    let turn = 0;
    await playHistories(HISTORIES, async () => {
      const database = await instance.createDatabase();
      async function killDatabase(): Promise<void> {
        turn += 1;
        const kind = turn % 6;
        if (kind === 0) return terminateBackends(database);
        if (kind === 1) return upgrade(database);
        if (kind === 2) instance.signal("SIGKILL");
        else if (kind === 3) instance.signal("SIGSTOP");
        else instance.stop(kind === 4 ? "immediate" : "fast");
        await Bun.sleep(Math.random() * OUTAGE_MS);
        if (kind === 3) instance.signal("SIGCONT");
        else await instance.start();
      }
      return { database, killDatabase, [Symbol.asyncDispose]: async () => {} };
    });
  },
  36_000_000,
);

test.if(againstBinary && againstCitus && canKillNodes)(
  "histories keep all promises while nodes of Citus are killed",
  async () => {
    let turn = 0;
    await playHistories(1, async () => {
      const database = await takeCitusDatabase();
      await runOn(database, ...recoverOften);
      async function killDatabase(): Promise<void> {
        turn += 1;
        const node = ["worker1", "coordinator", "worker2"][turn % 4];
        if (node === undefined) return terminateBackends(database);
        killNode(node);
        await Bun.sleep(Math.random() * OUTAGE_MS);
        await startNode(node);
        // Until transactions are recovered that were in doubt.
        await Bun.sleep(3_000);
      }
      const dispose = async () => releaseCitusDatabase(database);
      return { database, killDatabase, [Symbol.asyncDispose]: dispose };
    });
  },
  36_000_000,
);
