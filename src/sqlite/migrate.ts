import type { Database } from "bun:sqlite";
import { AppError } from "../error.ts";
import { claimPartial, sync } from "../partial-file.ts";
import { pragma } from "./connection.ts";
import { describeSqliteError } from "./errors.ts";
import { copyOwnership, createPrivateFile, discard, replaceFile } from "./files.ts";
import first from "./migrations/0001_users_orders_tokens.sql" with { type: "text" };
import second from "./migrations/0002_orders_without_insert_trigger.sql" with { type: "text" };

/** In order; the schema's version is how many of them have run. Never edit one that was released. */
export const migrations: readonly string[] = [first, second];

export const SCHEMA_VERSION = migrations.length;

/** "uapi": marks a file as ours (SQLite's `application_id`). */
const APPLICATION_ID = 0x75617069;

/** Tables of the first migration, which every later schema has as well. */
const tables = ["buckets", "idempotency_keys", "imported_orders", "orders", "tokens", "users"];

function findTables(db: Database): Set<string> {
  const names = db
    .prepare<{ name: string }, []>("select name from sqlite_schema where type = 'table'")
    .all();
  return new Set(names.map(({ name }) => name));
}

/**
 * What is to run before this program can use the database.
 * @param available those that this program has
 * @returns how many of them are missing
 * @throws {AppError} operator when the schema is newer than this program, incomplete, or not ours at all
 */
export function missingMigrations(db: Database, available = migrations): number {
  const version = pragma(db, "user_version");
  // In this order: another process may commit the first migration between two reads.
  const is_empty = db.prepare("select 1 from sqlite_schema limit 1").get() === null;
  const is_ours = pragma(db, "application_id") === APPLICATION_ID;
  if (!is_ours && (version > 0 || !is_empty)) {
    throw new AppError("operator", "it is the database of another program");
  }
  if (version > available.length) {
    const limit = `this program knows versions up to ${available.length}`;
    throw new AppError("operator", `its schema has version ${version}, ${limit}: use a newer one`);
  }
  if (is_ours) {
    const found = findTables(db);
    const missing = tables.filter((table) => !found.has(table));
    if (missing.length > 0) {
      const list = missing.join(", ");
      throw new AppError(
        "operator",
        `it is a user-api database, but these tables are missing: ${list}`,
      );
    }
  }
  return available.length - version;
}

/**
 * Keeps a database as it is before its schema is changed, beside it, e.g. as `user-api.db.v1`.
 * @throws {AppError} operator when the copy cannot be written
 */
export function backUpBeforeMigration(db: Database): void {
  const version = pragma(db, "user_version");
  if (version === 0) return;
  const backup_path = `${db.filename}.v${version}`;
  const temporary_path = claimPartial(backup_path);
  try {
    createPrivateFile(temporary_path);
    db.run("vacuum into ?", [temporary_path]);
    copyOwnership(temporary_path, db.filename);
    sync(temporary_path);
    // An earlier attempt may have left one, of an older state.
    replaceFile(temporary_path, backup_path);
  } catch (error) {
    throw describeSqliteError(`cannot keep it as ${backup_path}`, error);
  } finally {
    discard(temporary_path);
  }
}

/** Brings the schema up to date: all or nothing, also when two processes try at once. */
export function migrate(db: Database, available = migrations): void {
  const run = db.transaction(() => {
    const missing = missingMigrations(db, available);
    if (missing === 0) return;
    for (const sql of available.slice(-missing)) db.run(sql);
    db.run(`pragma application_id = ${APPLICATION_ID}`);
    db.run(`pragma user_version = ${available.length}`);
  });
  run.immediate();
}
