import type { Database } from "bun:sqlite";
import { fail } from "../error.ts";
import { requireSupported } from "../schema-version.ts";
import { claimTemporary, fsyncPath } from "../temporary-file.ts";
import { pragma } from "./connection.ts";
import { describeSqliteError } from "./errors.ts";
import { copyOwnership, createPrivateFile, discard, replaceFile } from "./files.ts";
import first from "./migrations/0001_users_orders_tokens.sql" with { type: "text" };
import second from "./migrations/0002_orders_without_insert_trigger.sql" with { type: "text" };
import third from "./migrations/0003_one_sigma.sql" with { type: "text" };
import fourth from "./migrations/0004_changes.sql" with { type: "text" };

/** In order. The version of a schema is the number of migrations that have run. Never edit a released one. */
export const migrations: readonly string[] = [first, second, third, fourth];

export const SCHEMA_VERSION = migrations.length;

/** "uapi". SQLite's `application_id`, which marks a file as a user-api database. */
const APPLICATION_ID = 0x75617069;

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
 * Reads the schema version.
 * @param available the migrations that this program knows
 * @returns 0 if the database is empty
 * @throws {AppError} operator if the schema is newer than this program or incomplete, or if the database belongs
 * to another application
 */
export function findVersion(db: Database, available = migrations): number {
  const version = pragma(db, "user_version");
  // In this order: another process may commit the first migration between two reads.
  const isEmpty = db.prepare(findTableOfOthers).get() === null;
  const isOurs = pragma(db, "application_id") === APPLICATION_ID;
  if (!isOurs && (version > 0 || !isEmpty)) {
    fail("operator", "the database belongs to another application");
  }
  requireSupported(version, available.length);
  if (isOurs) {
    const hasTable = db.prepare("select 1 from sqlite_schema where type = 'table' and name = ?");
    const missing = tables.filter((table) => hasTable.get(table) === null);
    if (missing.length > 0) {
      fail("operator", `the user-api database lacks these tables: ${missing.join(", ")}`);
    }
  }
  return version;
}

/**
 * Copies a database before its schema is changed, e.g. to `user-api.db.v1` in the same directory. Does nothing if
 * the database is new.
 * @throws {AppError} operator if the copy cannot be written
 */
export function backUpBeforeMigration(db: Database): void {
  const version = pragma(db, "user_version");
  if (version === 0) return;
  const backupPath = `${db.filename}.v${version}`;
  const temporaryPath = claimTemporary(backupPath);
  try {
    createPrivateFile(temporaryPath);
    db.run("vacuum into ?", [temporaryPath]);
    copyOwnership(temporaryPath, db.filename);
    fsyncPath(temporaryPath);
    // An earlier attempt may have left a copy of an older state.
    replaceFile(temporaryPath, backupPath);
  } catch (error) {
    throw describeSqliteError(
      `cannot copy the database to ${backupPath} before the migration`,
      error,
    );
  } finally {
    discard(temporaryPath);
  }
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
