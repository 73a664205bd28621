import { Database } from "bun:sqlite";
import { fail } from "../../base/error.ts";
import { withIoErrors } from "./errors.ts";

/** How long opening waits for another process, e.g. for a migration. */
const OPEN_TIMEOUT_MS = 5_000;

/**
 * Number of pages in the WAL that makes a checkpoint due: 16 MB. With SQLite's default of 1,000, most pages are
 * written again soon after they were copied. With four times as many, each page is copied less often, so
 * writes are cheaper.
 */
export const CHECKPOINT_PAGES = 4000;

/** The WAL is truncated to this size: four times the usual one between two checkpoints, of SQLite's default pages. */
export const WAL_LIMIT_BYTES = 4 * CHECKPOINT_PAGES * 4096;

/** The first SQLite with `octet_length`. On macOS the system provides SQLite. */
const MIN_SQLITE = "3.43.0";

export function connect(path: string, create = false): Database {
  const db = new Database(path, { create, readwrite: true, strict: true });
  db.run(`pragma busy_timeout = ${OPEN_TIMEOUT_MS}`);
  db.run("pragma trusted_schema = off");
  return db;
}

/** Enables what SQLite disables by default, mainly durability and foreign keys. */
export function configure(db: Database): void {
  db.run("pragma journal_mode = wal");
  // One fsync per commit. With less, a power failure loses acknowledged writes.
  db.run("pragma synchronous = full");
  // On macOS, fsync alone does not flush to the disk.
  db.run("pragma fullfsync = on");
  db.run(`pragma wal_autocheckpoint = ${CHECKPOINT_PAGES}`);
  // Shrinks a WAL that grew while a backup was reading an older state.
  db.run(`pragma journal_size_limit = ${WAL_LIMIT_BYTES}`);
  db.run("pragma foreign_keys = on");
}

/** @returns e.g. `3.51.3` */
export function sqliteVersion(db: Database): string {
  const statement = db.prepare<{ version: string }, []>("select sqlite_version() as version");
  return statement.get()?.version ?? "";
}

/** @throws {AppError} operator if this version of SQLite lacks what the statements need */
export function requireSqlite(version: string): void {
  if (Bun.semver.order(version, MIN_SQLITE) >= 0) return;
  const advice = "update the operating system, which provides it";
  fail("operator", `SQLite ${version} is too old: ${advice}, to SQLite ${MIN_SQLITE} or newer`);
}

export function countRows(db: Database, table: string): number {
  const query = `select count(*) as rows from ${table}`;
  return withIoErrors(db, () => db.prepare<{ rows: number }, []>(query).get()?.rows ?? 0);
}

export function pragma(db: Database, name: string): number {
  const statement = () => db.prepare<Record<string, number>, []>(`pragma ${name}`);
  return Number(withIoErrors(db, () => statement().get()?.[name]));
}
