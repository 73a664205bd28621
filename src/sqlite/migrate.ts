import type { Database } from "bun:sqlite";
import { fail } from "../error.ts";
import { requireCurrent, requireSupported } from "../schema-version.ts";
import { pragma } from "./connection.ts";
import schema from "./migrations/0001_schema.sql" with { type: "text" };

/** In order. The version of a schema is the number of migrations that have run. Never edit a released one. */
export const migrations: readonly string[] = [schema];

export const SCHEMA_VERSION = migrations.length;

/** "uapi". SQLite's `application_id`, which marks a file as a user-api database. */
export const APPLICATION_ID = 0x75617069;

/** Tables of the first migration. Every later schema has them too. */
const tables = ["buckets", "idempotency_keys", "imported_orders", "orders", "tokens", "users"];

/** Litestream creates tables of its own in each database that it replicates, and may open a new one first. */
const findTableOfOthers = `
  select 1
  from sqlite_schema
  where tbl_name not glob '_litestream_*'
  limit 1
`;

/**
 * Reads the schema version, which may be newer than this program.
 * @returns 0 if the database is empty
 * @throws {AppError} operator if the database belongs to another application
 */
export function readVersion(db: Database): number {
  const version = pragma(db, "user_version");
  // In this order: another process may commit the first migration between two reads.
  const isEmpty = db.prepare(findTableOfOthers).get() === null;
  const isOurs = pragma(db, "application_id") === APPLICATION_ID;
  if (!isOurs && (version > 0 || !isEmpty)) {
    fail("operator", "the database belongs to another application");
  }
  return version;
}

/**
 * @param available the migrations that this program knows
 * @returns the schema version; 0 if the database is empty
 * @throws {AppError} operator if the schema is newer than this program or incomplete, or if the database belongs
 * to another application
 */
export function findVersion(db: Database, available = migrations): number {
  const version = readVersion(db);
  requireSupported(version, available.length);
  if (pragma(db, "application_id") === APPLICATION_ID) {
    const hasTable = db.prepare("select 1 from sqlite_schema where type = 'table' and name = ?");
    const missing = tables.filter((table) => hasTable.get(table) === null);
    if (missing.length > 0) {
      fail("operator", `the user-api database lacks these tables: ${missing.join(", ")}`);
    }
  }
  return version;
}

/**
 * @throws as `findVersion`
 * @throws {AppError} operator if the database is empty, or its schema is older than this program
 */
export function requireCurrentSchema(db: Database): void {
  const version = findVersion(db);
  // E.g. a backup that was cut off.
  if (version === 0) fail("operator", "the database is empty");
  requireCurrent(version, SCHEMA_VERSION);
}

/**
 * Brings the schema up to date in one transaction. Two processes may call it concurrently.
 * @returns the version before
 */
export function migrate(db: Database, available = migrations): number {
  const run = db.transaction(() => {
    const version = findVersion(db, available);
    if (version === available.length) return version;
    for (const sql of available.slice(version)) db.run(sql);
    db.run(`pragma application_id = ${APPLICATION_ID}`);
    db.run(`pragma user_version = ${available.length}`);
    return version;
  });
  return run.immediate();
}
