/** For tests with PostgreSQL: stores on a database of their own, and direct access to that database. */
import { SQL } from "bun";
import type { Store, StoreOptions } from "../../src/domain/store.ts";
import { openPostgres } from "../../src/postgres/backend.ts";
import { connect, type Database, type Value } from "../../src/postgres/server/connection.ts";
import { oneServer } from "../../src/postgres/server/placement.ts";
import { storeOptions, untilConnected } from "../support/open-store.ts";
import { type Cluster, findCluster } from "./cluster.ts";
import { databasesOf } from "./database.ts";

export const cluster: Cluster | null = await findCluster();

interface Held extends AsyncDisposable {
  commit(): Promise<void>;
}

export interface Harness extends AsyncDisposable {
  readonly url: string;
  urlWith(parameters: string): string;
  /** Opens another store on the database, as another replica would. It is closed at the end of the test. */
  open(options?: Partial<StoreOptions>): Promise<Store>;
  /** The number of requests that shared each commit of the stores. */
  readonly commits: number[];
  /** Opens connections as a store has them. They are closed at the end of the test. */
  connect(databaseUrl?: string): Database;
  run<Row>(statement: string): Promise<Row[]>;
  /** Runs a statement in a transaction that stays open until it is committed or disposed of. */
  hold(statement: string): Promise<Held>;
  untilWaiting(connections?: number): Promise<void>;
}

/** Added to a URL: a statement waits so long for a lock that nothing times out on a slow machine. */
export const patient = "&lock_timeout=9000&statement_timeout=9000";

export const storedTime = "'2026-11-23T09:00:00.000Z'";

export const tablesWithoutKey = `
  select oid::regclass::text as name
  from pg_class
  where relkind = 'r'
    and relnamespace = 'public'::regnamespace
    and not exists (select from pg_index where indrelid = pg_class.oid and indisprimary)
`;

export const waitingBackends = `
  select pid
  from pg_stat_activity
  where datname = current_database() and wait_event_type = 'Lock'
`;

/** @returns statements that delete a user of version 1 as the service does */
export function deleteUser(id: number): string {
  return `
    delete from users where id = ${id};
    insert into change_outbox (type, record_id, version, created_at) values (3, ${id}, 1, 0)
  `;
}

/** @returns the value as a literal of SQL, whose type follows from its place */
function literalOf(value: Value): string {
  if (value === null) return "null";
  const text = typeof value === "object" ? `{${value.join()}}` : String(value);
  return `'${text.replaceAll("'", "''")}'`;
}

/**
 * @param mode of the plan: for these values, or for any
 * @returns the number of pages that a statement reads on the one connection of the database
 */
export function countPages(
  db: Database,
  statement: string,
  values: readonly Value[] = [],
  mode = "force_custom_plan",
): Promise<number> {
  const name = `counted_${crypto.randomUUID().replaceAll("-", "")}`;
  const literals = values.length === 0 ? "" : `(${values.map(literalOf).join()})`;
  return db.run("write", async (session) => {
    await session.script(`prepare ${name} as ${statement}`);
    await session.script(`set plan_cache_mode = ${mode}`);
    const row = await session.first<{ "QUERY PLAN": { Plan: Record<string, number> }[] }>(
      `explain (analyze, buffers, format json) execute ${name}${literals}`,
    );
    const plan = row?.["QUERY PLAN"][0]?.Plan;
    return (plan?.["Shared Hit Blocks"] ?? 0) + (plan?.["Shared Read Blocks"] ?? 0);
  });
}

export async function makeHarness(empty = false): Promise<Harness> {
  if (cluster === null) throw new Error("there is no PostgreSQL");
  const url = empty ? await cluster.createDatabase() : await databasesOf(cluster).take();
  const commits: number[] = [];
  const opened: { close(): Promise<void> }[] = [];

  async function open(options: Partial<StoreOptions> = {}): Promise<Store> {
    const onCommit = (requests: number) => void commits.push(requests);
    const all = { ...storeOptions, databaseUrl: url, onCommit, ...options };
    const store = await untilConnected(() => openPostgres(all));
    opened.push(store);
    return store;
  }
  const run = <Row>(statement: string) => cluster.run<Row>(url, statement);

  return {
    url,
    urlWith: (parameters) => Object.assign(new URL(url), { search: parameters }).href,
    commits,
    open,
    connect(databaseUrl = url) {
      const db = connect({ databaseUrl }, oneServer.settings);
      opened.push(db);
      return db;
    },
    run,
    async hold(statement) {
      const sql = new SQL(url, { max: 1 });
      await sql.unsafe(`begin; ${statement}`);
      return {
        async commit() {
          await sql.unsafe("commit");
          await sql.close();
        },
        [Symbol.asyncDispose]: () => sql.close({ timeout: 0 }),
      };
    },
    async untilWaiting(connections = 1) {
      while ((await run(waitingBackends)).length < connections) await Bun.sleep(5);
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(opened.map((each) => each.close()));
      if (empty) await cluster.dropDatabase(url);
      else await databasesOf(cluster).release(url);
    },
  };
}
