/** A PostgreSQL server for the tests: that of TEST_POSTGRES_URL, none if it is `none`, or one made for them. */
import { SQL } from "bun";
import { findPrograms, makeInstance } from "./instance.ts";

export interface Cluster {
  /** @returns the URL of a new database, a copy of `template` if given, which nobody may have open */
  createDatabase(template?: string): Promise<string>;
  /** Whoever has it open or not. */
  dropDatabase(url: string): Promise<void>;
  /** Runs statements in the database of the URL. */
  run<Row>(url: string, statement: string): Promise<Row[]>;
  /** URL of its first database. */
  readonly url: string;
  /** Folder of its programs and of its data; `null` for a server that was started elsewhere. */
  readonly own: { readonly programs: string; readonly data: string } | null;
}

function withDatabase(url: string, name: string): string {
  const changed = new URL(url);
  changed.pathname = `/${name}`;
  // A test has its database to itself, and most ask one thing after the other.
  if (!changed.searchParams.has("max")) changed.searchParams.set("max", "5");
  return changed.href;
}

/** @param kept whether all goes with the server, and nothing needs to be waited for */
function clusterAt(url: string, own: Cluster["own"], kept: boolean): Cluster {
  const sql = new SQL(url, { max: 2 });

  /** As `with (force)` does, which PostgreSQL 12 does not have. */
  async function drop(name: string): Promise<void> {
    await sql.unsafe(`alter database ${name} with allow_connections false`);
    await sql.unsafe(
      `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${name}'`,
    );
    await sql.unsafe(`drop database ${name}`);
  }

  return {
    url,
    own,
    async createDatabase(template) {
      const name = `user_api_test_${crypto.randomUUID().replaceAll("-", "")}`;
      const from = template === undefined ? "template0" : new URL(template).pathname.slice(1);
      await sql.unsafe(`create database ${name} template ${from}`);
      return withDatabase(url, name);
    },
    async dropDatabase(database) {
      const dropping = drop(new URL(database).pathname.slice(1));
      // The server waits 0.1 s for connections that are just being closed.
      if (kept) dropping.catch(() => {});
      else await dropping;
    },
    async run(database, statement) {
      const other = new SQL(database, { max: 1 });
      try {
        return await other.unsafe(statement);
      } finally {
        await other.close();
      }
    },
  };
}

async function openCluster(): Promise<Cluster | null> {
  const given = Bun.env["TEST_POSTGRES_URL"];
  if (given === "none") return null;
  if (given !== undefined && given !== "")
    return clusterAt(given, null, Bun.env["TEST_POSTGRES_KEEP"] === "true");
  const programs = findPrograms();
  if (programs === null) return null;
  // Nothing here has to outlive the machine.
  const instance = await makeInstance(programs, { fsync: "off", autovacuum: "off" });
  await instance.start();
  return clusterAt(instance.url, instance, true);
}

const missing = "PostgreSQL is not tested: there is no initdb here, nor TEST_POSTGRES_URL";

const shared: { cluster?: Promise<Cluster | null> } = {};

/**
 * The one server of all test files. `null` where there is none, which is a failure on CI and where it is
 * required.
 * @param tell whether it is told in a line that there is none
 */
export function findCluster(tell = true): Promise<Cluster | null> {
  shared.cluster ??= openCluster().then((cluster) => {
    if (cluster !== null) return cluster;
    const required = Bun.env["CI"] === "true" || Bun.env["TEST_POSTGRES_REQUIRED"] === "true";
    if (required) throw new Error(missing);
    if (tell) process.stderr.write(`${missing}\n`);
    return null;
  });
  return shared.cluster;
}
