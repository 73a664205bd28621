import type { PostgresLayout } from "../database-url.ts";
import { AppError, fail } from "../error.ts";
import type { Database, Session } from "./connection.ts";
import citus from "./migrations/0001_citus.sql" with { type: "text" };
import plain from "./migrations/0001_plain.sql" with { type: "text" };
import tables from "./migrations/0001_tables.sql" with { type: "text" };

interface Migration {
  /** What both layouts run, first. */
  readonly both: string;
  readonly plain: string;
  readonly citus: string;
}

/** In order; the schema's version is how many of them have run. Never edit one that was released. */
const migrations: readonly Migration[] = [{ both: tables, plain, citus }];

/** "uapi": under this lock replicas that start at once migrate one after the other. */
const MIGRATION_LOCK = 0x75617069;

/** Statement-level triggers with tables of their rows, covering indexes, materialized subqueries. */
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

/** @throws {AppError} operator */
function requireServer({ version, encoding, ours, taken }: Server): void {
  if (version < OLDEST_VERSION) fail("operator", "PostgreSQL 12 or newer is needed");
  if (encoding !== "UTF8") fail("operator", `its encoding is ${encoding}, and must be UTF8`);
  if (!ours && taken) fail("operator", "it is the database of another program");
}

/**
 * What is to run before this program can use the database.
 * @param available those that this program has
 * @returns how many of them have run
 * @throws {AppError} operator when it is newer than this program, of another layout or program
 */
async function findVersion(
  session: Session,
  layout: PostgresLayout,
  available: number,
): Promise<number> {
  const found = await session.first<Server>(server_info);
  if (found === null) throw new Error("the server has told nothing of itself");
  requireServer(found);
  const current = found.ours ? await session.first<Schema>(schema_info) : null;
  if (current === null) {
    if (layout === "plain" || found.has_citus) return 0;
    fail(
      "operator",
      "POSTGRES_LAYOUT=citus needs the extension: run `create extension citus` in it",
    );
  }
  if (current.schema_version > available) {
    const limit = `this program knows versions up to ${available}`;
    throw new AppError(
      "operator",
      `its schema has version ${current.schema_version}, ${limit}: use a newer one`,
    );
  }
  if (current.layout !== layout) {
    fail("operator", `it was made with POSTGRES_LAYOUT=${current.layout}, which cannot be changed`);
  }
  return current.schema_version;
}

/**
 * Brings the schema up to date: all or nothing, also when replicas try at once.
 * @param create whether a schema that is not there is made
 * @throws {AppError} operator
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
    fail("operator", "there is nothing in it yet: `user-api serve` begins it");
  const run = async (session: Session) => {
    // The others wait as long as it takes.
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
