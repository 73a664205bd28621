import { redactPassword } from "../../base/database-url.ts";
import { fail } from "../../base/error.ts";
import { requireCurrent, requireSupported } from "../../base/schema-version.ts";
import { orderStatuses } from "../../domain/order.ts";
import type { DistributeStore, StoreOptions } from "../../domain/store.ts";
import { itemAt } from "../engine/batch.ts";
import tables from "../migrations/0001_tables.sql" with { type: "text" };
import { countWorkers, distribute, severalServers, truncateLocalData } from "../server/citus.ts";
import * as connection from "../server/connection.ts";
import { describePostgresError, isRolledBack, sqlState } from "../server/errors.ts";
import { oneServer, type Placement } from "../server/placement.ts";
import { requireTrusted } from "../server/trust.ts";
import { totalOf } from "../tables/outbox.ts";

/** Citus passes the text of a query on to its workers, which accept only one statement. */
function splitStatements(script: string): readonly string[] {
  return script
    .trimEnd()
    .split(/;(?:\n\n|$)/)
    .filter((statement) => statement !== "");
}

/** In order. The schema version is the number of migrations that have run. A released migration is never edited. */
export const migrations: readonly (readonly string[])[] = [splitStatements(tables)];

/** Programs that know fewer migrations must not use the schema: a migration since has changed what they use. */
const OLDEST_VERSION = 1;

/** Not `to_regclass`: in a transaction that reads no table, it does not see what was created since, e.g. before the lock. */
const hasTable = (names: string) =>
  `exists (select from pg_catalog.pg_class where relname in (${names}) and pg_catalog.pg_table_is_visible(oid))`;
const serverInfo = `
  select
    ours,
    case
      when version < 150000 then 'PostgreSQL 15 or newer is required'
      when encoding <> 'UTF8' then pg_catalog.format('the encoding of the database is %s, but must be UTF8', encoding)
      when ${hasTable("'users', 'orders'")} and not ours then 'the database contains tables of another application'
    end as problem
  from (values (
    pg_catalog.current_setting('server_version_num')::integer, pg_catalog.current_setting('server_encoding'),
    ${hasTable("'user_api'")}
  )) as server (version, encoding, ours)
`;
const schemaInfo = `
  select schema_version, oldest_version, pg_catalog.to_regclass('order_index') is not null as is_distributed
  from user_api
`;
const updateVersion = `
  update user_api
  set schema_version = $1::integer, oldest_version = $2::integer
`;

/** Keeps others from changing the schema until the end of the transaction. The mode conflicts with itself, not with writes. */
const lockSchema = "lock table user_api in share update exclusive mode";

const LOCK_TIMEOUT_MS = 60_000;
/** Another process has created the tables meanwhile: a unique violation in a catalog, or a table, or its type, that exists. */
const ALREADY_CREATED = /^(23505|42P07|42710)$/;

const noSchema = {
  schema_version: 0,
  /** Number of migrations that a program must know to use the schema. */
  oldest_version: 0,
  is_distributed: false,
};
type Schema = Readonly<typeof noSchema>;

/** @throws {AppError} operator if the program cannot use this database */
async function findSchema(session: connection.Session): Promise<Schema> {
  type Server = { readonly ours: boolean; readonly problem: string | null };
  const { ours, problem } = itemAt(await session.all<Server>(serverInfo), 0);
  if (problem !== null) fail("operator", problem);
  await requireTrusted(session);
  return (ours ? await session.first<Schema>(schemaInfo) : null) ?? noSchema;
}

/** Replicas may call it concurrently. @throws {AppError} operator if the program cannot use it, or must not create or migrate it */
export async function migrate(
  db: connection.Database,
  { create, mode, onMigration }: Pick<StoreOptions, "create" | "mode" | "onMigration">,
  available = migrations,
): Promise<Placement> {
  const newest = available.length;
  async function findUsable(session: connection.Session): Promise<Schema> {
    const schema = await findSchema(session);
    const { schema_version: version, oldest_version } = schema;
    if (oldest_version > newest) requireSupported(version, newest);
    if (version === 0 && !create)
      fail("operator", "the database is empty: run `user-api serve` to create its tables");
    if (version > 0 && mode !== "serve") requireCurrent(version, newest);
    return schema;
  }
  const placementOf = ({ is_distributed }: Schema) => (is_distributed ? severalServers : oneServer);
  const present = await db.run("background", findUsable);
  if (present.schema_version >= newest) return placementOf(present);
  const run = async (session: connection.Session) => {
    // Of servers that create the tables at the same time, PostgreSQL lets one succeed.
    if (present.schema_version > 0) await session.script(lockSchema);
    const schema = await findUsable(session);
    const from = schema.schema_version;
    for (const statement of available.slice(from).flat()) await session.script(statement);
    if (from < newest) await session.all(updateVersion, newest, OLDEST_VERSION);
    if (from > 0 || (await countWorkers(session)) === 0)
      return { from, placement: placementOf(schema) };
    await distribute(session);
    return { from, placement: severalServers };
  };
  const mayRetry = (error: unknown) => isRolledBack(error) || ALREADY_CREATED.test(sqlState(error));
  const options = { ...connection.longTransaction, lockTimeoutMs: LOCK_TIMEOUT_MS, mayRetry };
  const { from, placement } = await db.run("background", run, options);
  if (from < newest) onMigration?.(from, newest);
  return placement;
}

export async function openMigrated(
  options: connection.ConnectOptions & Pick<StoreOptions, "create" | "mode" | "onMigration">,
): Promise<{ readonly db: connection.Database; readonly placement: Placement }> {
  const db = connection.connect(options, oneServer.settings);
  try {
    const placement = await migrate(db, options);
    if (placement === oneServer) return { db, placement };
    await db.close();
    return { db: connection.connect(options, placement.settings), placement };
  } catch (error) {
    await db.close();
    throw error;
  }
}

/** It waits no longer for transactions that use the tables: meanwhile, requests wait behind it. */
const distributeOptions = { ...connection.longTransaction, lockTimeoutMs: 10_000 };

/** With `user_api`, which every process reads first: one that starts meanwhile must wait. */
const lockTables = "lock table user_api, orders, users in access exclusive mode";

const countOrders = `select (${totalOf(...orderStatuses)})::bigint as orders`;

export const distributePostgres: DistributeStore = async (databaseUrl, onStart) => {
  const name = redactPassword(databaseUrl);
  await using db = connection.connect({ databaseUrl });
  const isDistributed = async (session: connection.Session) =>
    (await findSchema(session)).is_distributed;
  let attempt = `Cannot distribute ${name}`;
  try {
    const wasDistributed = await db.run("background", isDistributed);
    if (!wasDistributed) {
      const workers = await db.run("background", countWorkers);
      if (workers === 0)
        fail("operator", "it needs the extension citus, and workers in pg_dist_node");
      const count = (session: connection.Session) => session.first<{ orders: number }>(countOrders);
      onStart((await db.run("background", count))?.orders ?? 0, workers);
      const lockAndDistribute = async (session: connection.Session) => {
        await session.script(lockTables);
        // Another process may have done it meanwhile.
        if (!(await isDistributed(session))) await distribute(session);
      };
      await db.run("background", lockAndDistribute, distributeOptions);
    }
    attempt = `Distributed ${name}, but cannot free the disk space of its rows on the coordinator`;
    await db.run("background", (session) => session.script(truncateLocalData), distributeOptions);
    return !wasDistributed;
  } catch (error) {
    throw describePostgresError(attempt, error);
  }
};
