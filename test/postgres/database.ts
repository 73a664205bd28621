/** Databases with the schema, copied from a template that is created once. */
import { openPostgres } from "../../src/postgres/backend.ts";
import type { StoreOptions } from "../../src/store.ts";
import type { Cluster } from "./cluster.ts";

/** Options of a store with all limits out of the way. */
export const store_options: Omit<StoreOptions, "database_url"> = {
  max_pending_writes: 1000,
  max_unsent_bytes: 2 ** 25,
  exclusive: true,
  create: true,
  now: () => new Date(),
};

const templates = new WeakMap<Cluster, Promise<string>>();

async function makeTemplate(cluster: Cluster): Promise<string> {
  const database_url = await cluster.createDatabase();
  await (await openPostgres({ ...store_options, database_url })).close();
  return database_url;
}

/** @returns the URL of a new database with the schema and no rows */
export async function makeDatabase(cluster: Cluster): Promise<string> {
  const making = templates.get(cluster) ?? makeTemplate(cluster);
  templates.set(cluster, making);
  return cluster.createDatabase(await making);
}
