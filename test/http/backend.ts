/**
 * The database of a server under test: a SQLite file or, with TEST_DATABASE=postgres, one of PostgreSQL. With
 * TEST_DATABASE=citus it is on the cluster of TEST_CITUS_URL, which only one process at a time can use.
 */
import { Database } from "bun:sqlite";
import { releaseCitusDatabase, takeCitusDatabase } from "../postgres/citus.ts";
import { type Cluster, findCluster } from "../postgres/cluster.ts";
import { runOn } from "../postgres/instance.ts";
import type { TemporaryDirectory } from "../support/directory.ts";

export const againstCitus: boolean = Bun.env["TEST_DATABASE"] === "citus";
/** Also true for Citus. */
export const againstPostgres: boolean = againstCitus || Bun.env["TEST_DATABASE"] === "postgres";

async function requireCluster(): Promise<Cluster> {
  const cluster = await findCluster();
  if (cluster === null)
    throw new Error("TEST_DATABASE is postgres, but there is no PostgreSQL server");
  return cluster;
}

export async function newDatabase(directory: TemporaryDirectory): Promise<string> {
  if (againstCitus) return takeCitusDatabase();
  return againstPostgres ? (await requireCluster()).createDatabase() : directory.at("test.db");
}

/** Call after all connections are closed. */
export async function dropDatabase(url: string): Promise<void> {
  if (againstCitus) releaseCitusDatabase(url);
  // A file goes with its directory.
  else if (againstPostgres) await (await requireCluster()).dropDatabase(url);
}

/** Makes `id` the last assigned one, as if all ids before it had been used. */
export async function setLastId(url: string, table: "users" | "orders", id: bigint): Promise<void> {
  if (againstPostgres) {
    const sequence = againstCitus && table === "orders" ? "order_numbers" : `${table}_id_seq`;
    await runOn(url, `select setval('${sequence}', ${id})`);
    return;
  }
  using database = new Database(url, { strict: true });
  database.run("update sqlite_sequence set seq = ? where name = ?", [id, table]);
}
