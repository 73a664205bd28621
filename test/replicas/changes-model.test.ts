// The change feed with two replicas on PostgreSQL, or on Citus, where the replicas and the servers are killed.
import { expect, test } from "bun:test";
import { cpSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { againstCitus } from "../http/backend.ts";
import { againstBinary } from "../http/server.ts";
import { releaseCitusDatabase, takeCitusDatabase } from "../postgres/citus.ts";
import { findPrograms, runOn, startInstance } from "../postgres/instance.ts";
import { runChangesModel, type World, writingBackends } from "../support/changes-model.ts";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { binary } from "../support/program.ts";
import { canKillNodes, killNode, recoverOften, startNode } from "./citus-nodes.ts";
import { possible, runCommand } from "./pair.ts";

const [short, long] = againstCitus ? [5, 5] : [3, 10];
/** How long records change: `CHANGES_MODEL_SECONDS` for a longer run. */
const SECONDS = Number(Bun.env["CHANGES_MODEL_SECONDS"] ?? (isLong ? long : short));
const OUTAGE_MS = 200;

/** Some, so that transactions of one process are interrupted while those of another go on. */
async function terminateBackends(database: string): Promise<void> {
  await runOn(
    database,
    `select pg_terminate_backend(pid) from pg_stat_activity
      where application_name like 'user-api%' and random() < 0.5`,
  );
}

/** @returns the command of a later version, which has added a column */
function makeNewerProgram(directory: TemporaryDirectory): readonly string[] {
  const root = `${import.meta.dir}/../..`;
  cpSync(`${root}/src`, directory.at("src"), { recursive: true });
  for (const name of ["node_modules", "package.json"])
    symlinkSync(`${root}/${name}`, directory.at(name));
  const path = directory.at("src/postgres/whole/migrate.ts");
  const migrations = "[splitStatements(tables)]";
  const newer = '[splitStatements(tables), ["alter table orders add column note text"]]';
  const source = readFileSync(path, "utf8");
  expect(source).toContain(migrations);
  writeFileSync(path, source.replace(migrations, newer));
  return [process.execPath, directory.at("src/main.ts")];
}

const programs = findPrograms();
const timeoutMs = (2 * SECONDS + 120) * 1000;

test.if(possible && programs !== null)(
  "The change feed has each change once, in order, when replicas and PostgreSQL are killed, and replicas upgraded",
  async () => {
    using directory = makeDirectory();
    await using instance = await startInstance(programs ?? "", { fsync: "off" });
    let turn = 0;
    // Each replica is started again as the other version.
    const newer = isLong ? makeNewerProgram(directory) : [binary];
    const world: World = {
      database: instance.url,
      processes: 2,
      hasSnapshots: true,
      seconds: SECONDS,
      command: (starts) => (starts % 2 === 1 ? [binary] : newer),
      async killDatabase() {
        turn += 1;
        if (turn % 4 === 0) return terminateBackends(instance.url);
        if (turn % 4 === 1) instance.signal("SIGKILL");
        else instance.stop(turn % 4 === 2 ? "immediate" : "fast");
        await Bun.sleep(Math.random() * OUTAGE_MS);
        await instance.start();
      },
      async settle() {
        while ((await runOn(instance.url, writingBackends)).length > 0) await Bun.sleep(10);
      },
    };
    expect(await runChangesModel(world)).toBeGreaterThan(10 * SECONDS);
    if (!isLong) return;
    await runOn(instance.url, "select note from orders");
    for (const command of [
      "migrate",
      "check",
      "export orders",
      `copy --to ${directory.at("c.db")}`,
    ])
      expect(await runCommand(instance.url, ...command.split(" ")), command).toMatchObject({
        code: 0,
      });
  },
  timeoutMs,
);

test.if(againstBinary && againstCitus)(
  "The change feed has each change once, in order, when replicas and nodes of Citus are killed",
  async () => {
    const database = await takeCitusDatabase();
    await runOn(database, ...recoverOften);
    let turn = 0;
    const world: World = {
      database,
      processes: 2,
      hasSnapshots: false,
      seconds: SECONDS,
      ...(canKillNodes && {
        async killDatabase() {
          turn += 1;
          const node = ["worker1", "coordinator", "worker2"][turn % 4];
          if (node === undefined) return terminateBackends(database);
          killNode(node);
          await Bun.sleep(Math.random() * OUTAGE_MS);
          await startNode(node);
        },
      }),
      // Until transactions are recovered that were in doubt.
      settle: () => Bun.sleep(3_000),
    };
    expect(await runChangesModel(world)).toBeGreaterThan(100);
    releaseCitusDatabase(database);
  },
  timeoutMs,
);
