/** For tests with PostgreSQL: stores on a database of their own, and direct access to that database. */
import { SQL } from "bun";
import { openPostgres } from "../../src/postgres/backend.ts";
import type { Store, StoreOptions } from "../../src/store.ts";
import { storeOptions } from "../open-store.ts";
import { type Cluster, findCluster } from "./cluster.ts";
import { databasesOf } from "./database.ts";

export const cluster: Cluster | null = await findCluster();

interface Held extends AsyncDisposable {
  commit(): Promise<void>;
}

export interface Harness extends AsyncDisposable {
  readonly url: string;
  /** Opens another store on the database, as another replica would. It is closed at the end of the test. */
  open(options?: Partial<StoreOptions>): Promise<Store>;
  /** Runs statements on a connection of its own. */
  run<Row>(statement: string): Promise<Row[]>;
  /** Runs a statement in a transaction that stays open until it is committed or disposed of. */
  hold(statement: string): Promise<Held>;
}

/** Finds the connections of the service that wait for a lock. */
export const waitingBackends = `
  select pid
  from pg_stat_activity
  where datname = current_database() and application_name = 'user-api' and wait_event_type = 'Lock'
`;

/** @returns statements that delete a user of version 1 as the service does */
export function deleteUser(id: number): string {
  return `
    delete from users where id = ${id};
    insert into change_outbox (type, record_id, version, created_at) values (3, ${id}, 1, 0)
  `;
}

/** @param empty whether to omit the schema */
export async function makeHarness(empty = false): Promise<Harness> {
  if (cluster === null) throw new Error("there is no PostgreSQL");
  const url = empty ? await cluster.createDatabase() : await databasesOf(cluster).take();
  const stores: Store[] = [];
  return {
    url,
    async open(options = {}) {
      const store = await openPostgres({
        ...storeOptions,
        databaseUrl: url,
        ...options,
      });
      stores.push(store);
      return store;
    },
    run: (statement) => cluster.run(url, statement),
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
    async [Symbol.asyncDispose]() {
      await Promise.all(stores.map((store) => store.close()));
      if (empty) await cluster.dropDatabase(url);
      else await databasesOf(cluster).release(url);
    },
  };
}
