/** The tests' PostgreSQL server: at TEST_POSTGRES_URL, none if that is `none`, otherwise a new local one. */
import { SQL } from "bun";
import { findPrograms, makeInstance, runOn } from "./instance.ts";

export interface Cluster {
  /**
   * @param template URL of a database to copy, which must have no connections
   * @returns the URL of the new database
   */
  createDatabase(template?: string): Promise<string>;
  disconnect(url: string): Promise<void>;
  dropDatabase(url: string): Promise<void>;
  run<Row>(url: string, statement: string): Promise<Row[]>;
  readonly url: string;
}

function withDatabase(url: string, name: string): string {
  const changed = new URL(url);
  changed.pathname = `/${name}`;
  // Each test has its own database, and most run one query after another.
  if (!changed.searchParams.has("max")) changed.searchParams.set("max", "5");
  return changed.href;
}

function clusterAt(url: string): Cluster {
  const sql = new SQL(url, { max: 2 });

  const nameOf = (database: string) => new URL(database).pathname.slice(1);

  return {
    url,
    async createDatabase(template) {
      const name = `user_api_test_${crypto.randomUUID().replaceAll("-", "")}`;
      const from = template === undefined ? "template0" : nameOf(template);
      // A third of the time of the default strategy, which writes each page to the log.
      await sql.unsafe(`create database ${name} template ${from} strategy file_copy`);
      return withDatabase(url, name);
    },
    async disconnect(database) {
      const terminate = `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${nameOf(database)}'`;
      while ((await sql.unsafe(terminate)).length > 0) await Bun.sleep(5);
    },
    async dropDatabase(database) {
      await sql.unsafe(`drop database ${nameOf(database)} with (force)`);
    },
    run: (database, statement) => runOn(database, statement),
  };
}

async function openCluster(): Promise<Cluster | null> {
  const given = Bun.env["TEST_POSTGRES_URL"];
  if (given === "none") return null;
  if (given !== undefined && given !== "") return clusterAt(given);
  const programs = findPrograms();
  if (programs === null) return null;
  // The data need not survive a crash of the machine.
  const instance = await makeInstance(programs, { fsync: "off", autovacuum: "off" });
  await instance.start();
  return clusterAt(instance.url);
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
