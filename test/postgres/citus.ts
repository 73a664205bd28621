/**
 * Databases on the Citus cluster of TEST_CITUS_URL, which names one with the extension and all nodes. Creating the
 * tables takes seconds, so databases are kept and emptied. Only one process at a time can use them.
 */
import type { StoreOptions } from "../../src/domain/store.ts";
import { openPostgres } from "../../src/postgres/backend.ts";
import { storeOptions, withStore } from "../support/open-store.ts";
import { emptyFeed } from "./cluster.ts";
import { databaseOf, holdOn, runOn } from "./instance.ts";

const emptyTables = [
  "delete from orders",
  "delete from order_index",
  "delete from idempotency_keys",
  "delete from users",
  "delete from tokens",
  "delete from change_outbox",
  "delete from changes",
  emptyFeed,
  "select setval('users_id_seq', 1, false), setval('order_numbers', 1, false), setval('tokens_id_seq', 1, false)",
];

/** URL of the first database, as the driver takes it; `null` if there is no cluster. */
export const citusUrl: string | null = Bun.env["TEST_CITUS_URL"] || null;

interface Node {
  readonly nodename: string;
  readonly nodeport: number;
  /** 0 for the coordinator, which is the first. */
  readonly groupid: number;
}

const nodesOf = (url: string) =>
  runOn<Node>(url, "select nodename, nodeport, groupid from pg_dist_node order by groupid");

/** All nodes have the same databases, users and passwords. */
const urlOf = (coordinator: string, { nodename, nodeport }: Node) =>
  Object.assign(new URL(coordinator), { hostname: nodename, port: `${nodeport}` });

/** Creates a database on each of the nodes. Their servers do not know of each other. */
async function createDatabase(name: string, nodes: readonly Node[]): Promise<void> {
  for (const node of nodes) {
    const url = urlOf(`${citusUrl}`, node);
    await runOn(url, `drop database if exists ${name} with (force)`);
    await runOn(url, `create database ${name} template template0`);
    url.pathname = `/${name}`;
    await runOn(url, "create extension citus");
  }
}

async function addNodes(databaseUrl: string, nodes: readonly Node[]): Promise<void> {
  for (const { nodename, nodeport, groupid } of nodes) {
    const add = groupid === 0 ? "citus_set_coordinator_host" : "citus_add_node";
    await runOn(databaseUrl, `select ${add}('${nodename}', ${nodeport})`);
  }
}

function databaseUrlOf(name: string): string {
  const url = Object.assign(new URL(`${citusUrl}`), { pathname: `/${name}` });
  // A test has the database to itself, and the cluster has few connections.
  if (!url.searchParams.has("max")) url.searchParams.set("max", "5");
  return url.href;
}

/** A new database with the extension, whose workers are not added yet. */
export async function makePlainDatabase() {
  const nodes = await nodesOf(`${citusUrl}`);
  const name = `${databaseOf(`${citusUrl}`)}_plain`;
  await createDatabase(name, nodes);
  const databaseUrl = databaseUrlOf(name);
  return {
    databaseUrl,
    addWorkers: () => addNodes(databaseUrl, nodes),
    async [Symbol.asyncDispose]() {
      for (const node of nodes)
        await runOn(urlOf(`${citusUrl}`, node), `drop database ${name} with (force)`);
    },
  };
}

const usedNames = new Set<string>();

/** @returns the DATABASE_URL of an empty database, until it is released */
export async function takeCitusDatabase(): Promise<string> {
  if (citusUrl === null) throw new Error("TEST_CITUS_URL is not set");
  const base = databaseOf(citusUrl);
  let name = base;
  for (let number = 2; usedNames.has(name); number += 1) name = `${base}_${number}`;
  usedNames.add(name);
  const url = databaseUrlOf(name);
  const exists = `select from pg_database where datname = '${name}'`;
  if ((await runOn(citusUrl, exists)).length === 0) {
    const nodes = await nodesOf(citusUrl);
    await createDatabase(name, nodes);
    await addNodes(url, nodes);
  }
  const hasTables = "select from pg_tables where tablename = 'user_api'";
  if ((await runOn(url, hasTables)).length === 0) await withStore(url, async () => {});
  await runOn(url, ...emptyTables);
  return url;
}

export function releaseCitusDatabase(databaseUrl: string): void {
  usedNames.delete(databaseOf(databaseUrl));
}

export async function openCitusStore(options: Partial<StoreOptions> = {}) {
  const databaseUrl = await takeCitusDatabase();
  const store = await openPostgres({ ...storeOptions, ...options, databaseUrl });
  return {
    databaseUrl,
    store,
    async [Symbol.asyncDispose]() {
      await store.close();
      releaseCitusDatabase(databaseUrl);
    },
  };
}

/** Locks a user on each worker. @returns a function that releases the locks */
export async function lockUserOnWorkers(databaseUrl: string, id: number) {
  const [shard] = await runOn<{ name: string }>(
    databaseUrl,
    "select shard_name::text as name from citus_shards where table_name = 'users'::regclass limit 1",
  );
  const locks = new AsyncDisposableStack();
  const lock = `select from ${shard?.name} where id = ${id} for update`;
  for (const worker of (await nodesOf(databaseUrl)).slice(1))
    locks.use(await holdOn(urlOf(databaseUrl, worker), lock));
  return () => locks.disposeAsync();
}
