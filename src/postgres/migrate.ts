import type { PostgresLayout } from "../database-url.ts";
import { fail } from "../error.ts";
import { requireCurrent, requireSupported } from "../schema-version.ts";
import type { StoreOptions } from "../store.ts";
import citus from "./citus/migrations/0001_tables.sql" with { type: "text" };
import { sequentialMode } from "./citus/settings.ts";
import type { Database, Session } from "./connection.ts";
import changes from "./migrations/0001_changes.sql" with { type: "text" };
import plain from "./migrations/0001_tables.sql" with { type: "text" };

/** Scripts that run one after the other. Each is sent as one query. */
type Migration = readonly string[];

/**
 * Splits a script into statements, each of which ends with a semicolon and an empty line. Citus passes the text of a query
 * on to its workers, which accept only one statement.
 */
function splitStatements(script: string): Migration {
  return script
    .trimEnd()
    .split(/;(?:\n\n|$)/)
    .filter((statement) => statement !== "");
}

/**
 * By layout, in order. The schema version is the number of migrations that have run. A released migration is never
 * edited.
 */
export const migrations: Readonly<Record<PostgresLayout, readonly Migration[]>> = {
  plain: [[plain, changes]],
  citus: [[...splitStatements(citus), ...splitStatements(changes)]],
};

/** Key of the advisory lock, "uapi" in ASCII: replicas that start at the same time migrate one after the other. */
const MIGRATION_LOCK = 0x75617069;

const OLDEST_VERSION = 150_000;

const serverInfo = `
  select
    current_setting('server_version_num')::integer as version,
    current_setting('server_encoding') as encoding,
    to_regclass('user_api') is not null as ours,
    to_regclass('users') is not null or to_regclass('orders') is not null as taken,
    (
      select string_to_array(regexp_replace(extversion, '[^0-9.].*', ''), '.')::integer[] >= '{11,1}'
      from pg_extension
      where extname = 'citus'
    ) as has_citus
`;
const schemaInfo = `
  select schema_version, layout
  from user_api
`;
const insertVersion = `
  insert into user_api (schema_version, layout, probed_at)
  values ($1, $2, '')
`;
const updateVersion = `
  update user_api
  set schema_version = $1
`;
const takeLock = "select pg_advisory_xact_lock($1)";

interface Server {
  readonly version: number;
  readonly encoding: string;
  readonly ours: boolean;
  readonly taken: boolean;
  /** Whether the extension has a version that the layout needs; `null` if the extension is missing. */
  readonly has_citus: boolean | null;
}

interface Schema {
  readonly schema_version: number;
  readonly layout: PostgresLayout;
}

/** @throws {AppError} operator if the program cannot use this database */
function requireServer({ version, encoding, ours, taken }: Server): void {
  if (version < OLDEST_VERSION) fail("operator", "PostgreSQL 15 or newer is required");
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
  const found = await session.first<Server>(serverInfo);
  if (found === null) throw new Error("the query for the version of the server returned no row");
  requireServer(found);
  const current = found.ours ? await session.first<Schema>(schemaInfo) : null;
  if (current === null) {
    if (layout === "plain" && found.has_citus !== null)
      fail("operator", "the database has the extension citus: add ?layout=citus to its URL");
    if (layout === "plain" || found.has_citus === true) return 0;
    if (found.has_citus === false) fail("operator", "Citus 11.1 or newer is required");
    fail(
      "operator",
      "the layout citus needs the extension: run `create extension citus` in the database",
    );
  }
  // First, because the layouts have versions of their own.
  if (current.layout !== layout) {
    fail(
      "operator",
      `the database was created with the layout ${current.layout}: use ?layout=${current.layout} in its URL`,
    );
  }
  requireSupported(current.schema_version, available);
  return current.schema_version;
}

/**
 * Brings the schema up to date in one transaction. Replicas may call it concurrently.
 * @param available the migrations that this program knows
 * @throws {AppError} operator if the program cannot use this database, the schema is missing and must not be created,
 * or it is older and must not be migrated
 */
export async function migrate(
  db: Database,
  { create, mode, onMigration }: Pick<StoreOptions, "create" | "mode" | "onMigration">,
  available = migrations[db.layout],
): Promise<void> {
  const { layout } = db;
  const newest = available.length;
  async function findUsable(session: Session): Promise<number> {
    const version = await findVersion(session, layout, newest);
    if (version === 0 && !create)
      fail("operator", "the database is empty: run `user-api serve` to create its tables");
    if (version > 0 && mode !== "serve") requireCurrent(version, newest);
    return version;
  }
  if ((await db.run("read", findUsable)) === newest) return;
  const run = async (session: Session) => {
    // Replicas wait for the lock as long as the migration takes.
    await session.script("set local lock_timeout = 0; set local statement_timeout = 0");
    if (layout === "citus") await session.script(sequentialMode);
    await session.all(takeLock, MIGRATION_LOCK);
    const from = await findUsable(session);
    for (const statement of available.slice(from).flat()) await session.script(statement);
    if (from === 0) await session.all(insertVersion, newest, layout);
    else if (from < newest) await session.all(updateVersion, newest);
    return from;
  };
  const from = await db.run("write", run, {
    transaction: true,
    timeoutMs: Number.POSITIVE_INFINITY,
  });
  if (from < newest) onMigration?.(from, newest);
}
