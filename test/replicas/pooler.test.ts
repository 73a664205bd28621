// Two replicas behind PgBouncer, with the settings of docs/scaling-out.md. Servers of the service are killed.
import { test } from "bun:test";
import { againstPostgres, dropDatabase, newDatabase } from "../http/backend.ts";
import { againstBinary } from "../http/server.ts";
import { playHistories, type World } from "../model/contract/server-port.ts";
import { makeDirectory } from "../support/directory.ts";
import { hasPooler, keepsPreparedStatements, startPooler } from "./pooler.ts";

async function makeWorld(preparing?: string): Promise<World> {
  const directory = makeDirectory();
  const direct = await newDatabase(directory);
  const pooler = await startPooler(direct, preparing);
  async function dispose() {
    await pooler[Symbol.asyncDispose]();
    await dropDatabase(direct);
    directory[Symbol.dispose]();
  }
  return { database: pooler.through(direct), [Symbol.asyncDispose]: dispose };
}

test.if(againstBinary && againstPostgres && hasPooler())(
  "histories keep all promises when replicas connect through PgBouncer",
  () => playHistories(1, makeWorld),
  36_000_000,
);

test.if(againstBinary && againstPostgres && hasPooler() && keepsPreparedStatements())(
  "histories keep all promises when PgBouncer keeps prepared statements of replicas",
  async () => {
    const page = await Bun.file(`${import.meta.dir}/../../docs/scaling-out.md`).text();
    const [ignored] = /^ignore_startup_parameters = .*$/m.exec(page) ?? [];
    await playHistories(1, () => makeWorld(`max_prepared_statements = 100\n${ignored}`));
  },
  36_000_000,
);
