/** Databases with the schema, copied from a template that is created once. */
import { openPostgres } from "../../src/postgres/backend.ts";
import { storeOptions } from "../open-store.ts";
import type { Cluster } from "./cluster.ts";

const templates = new WeakMap<Cluster, Promise<string>>();

async function makeTemplate(cluster: Cluster): Promise<string> {
  const databaseUrl = await cluster.createDatabase();
  await (await openPostgres({ ...storeOptions, databaseUrl })).close();
  return databaseUrl;
}

/** @returns the URL of a new database with the schema and no rows */
export async function makeDatabase(cluster: Cluster): Promise<string> {
  const making = templates.get(cluster) ?? makeTemplate(cluster);
  templates.set(cluster, making);
  return cluster.createDatabase(await making);
}
