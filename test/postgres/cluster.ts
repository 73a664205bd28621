/** The tests' PostgreSQL server: at TEST_POSTGRES_URL, none if that is `none`, otherwise a new local one. */
import { SQL } from "bun";
import { openPostgres } from "../../src/postgres/backend.ts";
import { storeOptions, untilConnected } from "../support/open-store.ts";
import { hostileOperators } from "./hostile.ts";
import { databaseOf, findPrograms, runOn, startInstance } from "./instance.ts";

export const emptyFeed = `
  update change_feed
  set first = 1, last = 0, last_xid = 0, xid = txid_current(), next_xid = 0, open_xids = '{}', totals = '{0,0,0,0,0,0}'
`;

/** Takes less time than a new database. */
export const emptyTables = `
  truncate users, orders, idempotency_keys, tokens, change_outbox, changes;
  select setval(seqrelid, seqstart, false) from pg_sequence;
  ${emptyFeed}
`;

export type Cluster = ReturnType<typeof clusterAt>;

function clusterAt(url: string) {
  const sql = new SQL(url, { max: 2 });

  async function copyDatabase(template: string): Promise<string> {
    const copy = new URL(url);
    copy.pathname = `user_api_test_${crypto.randomUUID().replaceAll("-", "")}`;
    // Each test has its own database, and most run one query after another.
    if (!copy.searchParams.has("max")) copy.searchParams.set("max", "5");
    // A third of the time of the default strategy, which writes each page to the log.
    const create = `create database ${databaseOf(copy.href)} template ${template} strategy file_copy`;
    await sql.unsafe(create);
    return copy.href;
  }

  async function disconnect(database: string): Promise<void> {
    const terminate = `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${databaseOf(database)}'`;
    while ((await sql.unsafe(terminate)).length > 0) await Bun.sleep(5);
  }

  async function makeTemplate(): Promise<string> {
    const databaseUrl = await copyDatabase("template0");
    const open = () => openPostgres({ ...storeOptions, databaseUrl });
    await (await untilConnected(open)).close();
    await runOn(databaseUrl, hostileOperators);
    await disconnect(databaseUrl);
    return databaseOf(databaseUrl);
  }

  let template: Promise<string> | undefined;
  return {
    url,
    /** @returns the URL of a new database with the schema and no rows; without the schema if it is `empty` */
    async createDatabase(empty = false): Promise<string> {
      if (empty) return copyDatabase("template0");
      template ??= makeTemplate();
      return copyDatabase(await template);
    },
    disconnect,
    async dropDatabase(database: string): Promise<void> {
      await sql.unsafe(`drop database ${databaseOf(database)} with (force)`);
    },
  };
}

async function openCluster(): Promise<Cluster | null> {
  const given = Bun.env["TEST_POSTGRES_URL"];
  if (given === "none") return null;
  if (given !== undefined && given !== "") return clusterAt(given);
  const programs = findPrograms();
  if (programs === null) return null;
  // The data need not survive a crash of the machine.
  const { url } = await startInstance(programs, { fsync: "off", autovacuum: "off" });
  return clusterAt(url);
}

const missing = "PostgreSQL is not tested: there is no initdb here, nor TEST_POSTGRES_URL";

const shared: { cluster?: Promise<Cluster | null> } = {};

/**
 * Shared by all test files. `null` if there is no server.
 * @param warn whether to print a line if there is none
 * @throws {Error} if there is none, on CI or with TEST_POSTGRES_REQUIRED=true
 */
export function findCluster(warn = true): Promise<Cluster | null> {
  shared.cluster ??= openCluster().then((cluster) => {
    if (cluster !== null) return cluster;
    const required = Bun.env["CI"] === "true" || Bun.env["TEST_POSTGRES_REQUIRED"] === "true";
    if (required) throw new Error(missing);
    if (warn) process.stderr.write(`${missing}\n`);
    return null;
  });
  return shared.cluster;
}
