import type { PostgresLayout } from "../database-url.ts";
import { AppError, fail } from "../error.ts";
import type { Database, Session } from "./connection.ts";
import citus from "./migrations/0001_citus.sql" with { type: "text" };
import plain from "./migrations/0001_plain.sql" with { type: "text" };
import tables from "./migrations/0001_tables.sql" with { type: "text" };

interface Migration {
  /** Statements for both layouts. They run before those of the layout. */
  readonly both: string;
  readonly plain: string;
  readonly citus: string;
}

/**
 * In order. The schema version is the number of migrations that have run. A released migration is never edited.
 */
const migrations: readonly Migration[] = [{ both: tables, plain, citus }];

/** Key of the advisory lock, "uapi" in ASCII: replicas that start at the same time migrate one after the other. */
const MIGRATION_LOCK = 0x75617069;

/**
 * PostgreSQL 12: the first version that has all of transition tables of statement-level triggers, covering indexes
 * and materialized subqueries.
 */
const OLDEST_VERSION = 120_000;

const server_info = `
  select
    current_setting('server_version_num')::integer as version,
    current_setting('server_encoding') as encoding,
    to_regclass('user_api') is not null as ours,
    to_regclass('users') is not null or to_regclass('orders') is not null as taken,
    exists (select from pg_extension where extname = 'citus') as has_citus
`;
const schema_info = `
  select schema_version, layout
  from user_api
`;
const insert_version = `
  insert into user_api (schema_version, layout, probed_at)
  values ($1, $2, '')
`;
const update_version = `
  update user_api
  set schema_version = $1
`;
const take_lock = "select pg_advisory_xact_lock($1)";

interface Server {
  readonly version: number;
  readonly encoding: string;
  readonly ours: boolean;
  readonly taken: boolean;
  readonly has_citus: boolean;
}

interface Schema {
  readonly schema_version: number;
  readonly layout: PostgresLayout;
}

/** @throws {AppError} operator if the program cannot use this database */
function requireServer({ version, encoding, ours, taken }: Server): void {
  if (version < OLDEST_VERSION) fail("operator", "PostgreSQL 12 or newer is required");
  if (encoding !== "UTF8")
    fail("operator", `the encoding of the database is ${encoding}, but must be UTF8`);
  if (!ours && taken) fail("operator", "the database contains tables of another application");
}

/**
 * Reads the schema version.
 * @param available number of migrations that this program has
 * @returns number of migrations that have run; 0 if the schema is missing
 * @throws {AppError} operator if the schema is newer, has the other layout, or belongs to another application
 */
async function findVersion(
  session: Session,
  layout: PostgresLayout,
  available: number,
): Promise<number> {
  const found = await session.first<Server>(server_info);
  if (found === null) throw new Error("the query for the version of the server returned no row");
  requireServer(found);
  const current = found.ours ? await session.first<Schema>(schema_info) : null;
  if (current === null) {
    if (layout === "plain" || found.has_citus) return 0;
    fail(
      "operator",
      "the layout citus needs the extension: run `create extension citus` in the database",
    );
  }
  if (current.schema_version > available) {
    const limit = `this program supports versions up to ${available}`;
    throw new AppError(
      "operator",
      `the schema has version ${current.schema_version}, but ${limit}: use a newer program`,
    );
  }
  if (current.layout !== layout) {
    fail(
      "operator",
      `the database was created with the layout ${current.layout}: use ?layout=${current.layout} in its URL`,
    );
  }
  return current.schema_version;
}

/**
 * Brings the schema up to date in one transaction. Replicas may call it concurrently.
 * @param create whether to create a missing schema
 * @throws {AppError} operator if the program cannot use this database, or the schema is missing and not created
 */
export async function migrate(
  db: Database,
  layout: PostgresLayout,
  create: boolean,
  available = migrations,
): Promise<void> {
  const version = await db.read((session) => findVersion(session, layout, available.length));
  if (version === available.length) return;
  if (version === 0 && !create)
    fail("operator", "the database is empty: run `user-api serve` to create its tables");
  const run = async (session: Session) => {
    // Replicas wait for the lock as long as the migration takes.
    await session.script("set local lock_timeout = 0; set local statement_timeout = 0");
    await session.all(take_lock, MIGRATION_LOCK);
    const from = await findVersion(session, layout, available.length);
    for (const migration of available.slice(from)) {
      await session.script(migration.both);
      await session.script(migration[layout]);
    }
    if (from === 0) await session.all(insert_version, available.length, layout);
    else if (from < available.length) await session.all(update_version, available.length);
  };
  await db.transact(run, { timeout_ms: Number.POSITIVE_INFINITY });
}
