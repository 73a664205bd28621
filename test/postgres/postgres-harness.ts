/** For tests with PostgreSQL: stores on a separate database, and direct access to that database. */
import { test as bunTest, expect } from "bun:test";
import type { Store, StoreOptions } from "../../src/domain/store.ts";
import { openPostgres } from "../../src/postgres/backend.ts";
import { createContext } from "../../src/postgres/engine/context.ts";
import type { Database, Session, Value } from "../../src/postgres/server/connection.ts";
import { connect } from "../../src/postgres/server/connection.ts";
import { oneServer } from "../../src/postgres/server/placement.ts";
import { createOrderStore } from "../../src/postgres/tables/orders.ts";
import { createTokenStore } from "../../src/postgres/tables/tokens.ts";
import { createUserStore } from "../../src/postgres/tables/users.ts";
import { storeOptions, untilConnected } from "../support/open-store.ts";
import { type Cluster, findCluster } from "./cluster.ts";
import { holdOn, runOn } from "./instance.ts";

export const cluster: Cluster | null = await findCluster();

/** Added to a URL: a statement waits so long for a lock that nothing times out on a slow machine. */
export const patient = "&lock_timeout=9000&statement_timeout=9000";

export const storedTime = "'2026-11-23T09:00:00.000Z'";

export const waitingBackends = `
  select pid
  from pg_stat_activity
  where datname = current_database() and wait_event_type = 'Lock'
`;

/** @returns statements that create a user as the service does */
export function insertUser(id: number, email = `${id}@b.cd`): string {
  return `
    insert into users values (${id}, '${email}', '${email}', null, null, '{}', 1, ${storedTime}, ${storedTime});
    insert into change_outbox (type, record_id, version, created_at) values (1, ${id}, 1, 0)
  `;
}

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
 * Expects that a statement reads at most so many pages on the one connection of the database, with a plan for these values
 * and with one for any.
 */
export async function expectPages(
  db: Database,
  most: number,
  statement: string,
  values: readonly Value[] = [],
): Promise<void> {
  const name = `counted_${crypto.randomUUID().replaceAll("-", "")}`;
  const literals = values.length === 0 ? "" : `(${values.map(literalOf).join()})`;
  const explain = `explain (analyze, buffers, format json) execute ${name}${literals}`;
  await db.run("write", async (session) => {
    await session.script(`prepare ${name} as ${statement}`);
    // The first call loads catalogs.
    await session.first(explain);
    for (const mode of ["force_custom_plan", "force_generic_plan"]) {
      await session.script(`set plan_cache_mode = ${mode}`);
      const row = await session.first<{ "QUERY PLAN": { Plan: Record<string, number> }[] }>(
        explain,
      );
      const plan = row?.["QUERY PLAN"][0]?.Plan;
      const pages = (plan?.["Shared Hit Blocks"] ?? 0) + (plan?.["Shared Read Blocks"] ?? 0);
      expect(pages, `${mode} ${statement} ${values}`).toBeWithin(1, most + 1);
    }
  });
}

/**
 * @param before is called before each statement
 * @returns stores, and the statements that they send with values
 */
export function recordStatements(
  opened: Database,
  before?: (statement: string, values: readonly Value[]) => Promise<unknown> | undefined,
  placement = oneServer,
) {
  const sent: { statement: string; values: readonly Value[] }[] = [];
  const record = (session: Session): Session => ({
    ...session,
    async all(statement, ...values) {
      sent.push({ statement, values });
      await before?.(statement, values);
      return session.all(statement, ...values);
    },
    async first(statement, ...values) {
      sent.push({ statement, values });
      await before?.(statement, values);
      return session.first(statement, ...values);
    },
  });
  const run: Database["run"] = (kind, work, options) =>
    opened.run(kind, (session) => work(record(session)), options);
  const context = createContext({ ...opened, run }, placement, () => new Date());
  const users = createUserStore(context);
  return { users, orders: createOrderStore(context), tokens: createTokenStore(context), sent };
}

export type Harness = Awaited<ReturnType<typeof makeHarness>>;

export async function makeHarness(empty = false) {
  if (cluster === null) throw new Error("there is no PostgreSQL");
  const url = await cluster.createDatabase(empty);
  /** The number of requests that shared each commit of the stores. */
  const commits: number[] = [];
  const opened: { close(): Promise<void> }[] = [];
  const run = <Row>(statement: string) => runOn<Row>(url, statement);
  return {
    url,
    urlWith: (parameters: string) => Object.assign(new URL(url), { search: parameters }).href,
    commits,
    run,

    /** Opens another store on the database, as another replica would. It is closed at the end of the test. */
    async open(options: Partial<StoreOptions> = {}): Promise<Store> {
      const onCommit = (requests: number) => void commits.push(requests);
      const all = { ...storeOptions, databaseUrl: url, onCommit, ...options };
      const store = await untilConnected(() => openPostgres(all));
      opened.push(store);
      return store;
    },

    /** Opens connections as a store has them. They are closed at the end of the test. */
    connect(databaseUrl = url): Database {
      const db = connect({ databaseUrl }, oneServer.settings);
      opened.push(db);
      return db;
    },

    hold: (statement: string) => holdOn(url, statement),

    async untilWaiting(connections = 1) {
      while ((await run(waitingBackends)).length < connections) await Bun.sleep(5);
    },

    async [Symbol.asyncDispose]() {
      await Promise.all(opened.map((each) => each.close()));
      await cluster.dropDatabase(url);
    },
  };
}

/** A test with a separate database, which is skipped if there is no PostgreSQL. */
export function test(title: string, body: (world: Harness) => Promise<void>): void {
  bunTest.if(cluster !== null)(title, async () => {
    await using world = await makeHarness();
    await body(world);
  });
}
