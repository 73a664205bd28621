/** Databases for a test, each with the schema, as copies of one that is made once. */
import { openPostgres } from "../../src/postgres/backend.ts";
import type { Cluster } from "./cluster.ts";

const templates = new WeakMap<Cluster, Promise<string>>();

async function makeTemplate(cluster: Cluster): Promise<string> {
  const database_url = await cluster.createDatabase();
  const options = {
    max_pending_writes: 1,
    max_unsent_bytes: 0,
    exclusive: true,
    create: true,
    now: () => new Date(),
  };
  await (await openPostgres({ ...options, database_url })).close();
  return database_url;
}

/** @returns the URL of a new database with the schema and nothing in it */
export async function makeDatabase(cluster: Cluster): Promise<string> {
  const making = templates.get(cluster) ?? makeTemplate(cluster);
  templates.set(cluster, making);
  return cluster.createDatabase(await making);
}
