import { constants, Database } from "bun:sqlite";
import { suffixes } from "../../base/database-url.ts";
import { fail } from "../../base/error.ts";
import { requireOwnNeighbours } from "../../base/trusted-path.ts";
import { withIoErrors } from "./errors.ts";
import { fileState, sidecarsOf } from "./files.ts";

/** How long opening waits for another process, e.g. for a migration. */
const OPEN_TIMEOUT_MS = 5_000;

/** Pages in the WAL that make a checkpoint due: 16 MB. With SQLite's 1,000, most would be written again soon after it. */
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

/** @returns whether there is no WAL, in which case the file is complete. A server has one as long as it runs */
export function isAtRest(path: string): boolean {
  return sidecarsOf(path).every((suffix) => suffix === suffixes.shm);
}

/** Reads without a trace what no process has open, also where nothing can be written: no WAL, no locks, no CHECK constraints. */
export function connectAtRest(path: string): Database {
  const { SQLITE_OPEN_READONLY, SQLITE_OPEN_URI } = constants;
  // Only flags allow a URI. Without the option `strict`, a missing value is null instead of an error.
  const db = new Database(
    `${Bun.pathToFileURL(path).href}?immutable=1`,
    SQLITE_OPEN_READONLY | SQLITE_OPEN_URI,
  );
  db.run("pragma trusted_schema = off");
  return db;
}

export type DatabaseFile = ReturnType<typeof openFile>;

/**
 * Call it before the first connection. A server may start meanwhile. It first writes to the WAL, which is not read. When
 * it changes the file itself, which would mix two states, `requireUnchanged` notices.
 * @param mayBeAtRest whether the database is read without locks if it has no WAL
 * @throws as {@link requireOwnNeighbours} if it is locked, as SQLite does by default
 */
export function openFile(path: string, mayBeAtRest: boolean) {
  // First, or a server that starts in between could have changed a part of the file.
  const before = fileState(path);
  const atRest = mayBeAtRest && isAtRest(path);
  if (!atRest) requireOwnNeighbours(path);
  return {
    path,
    atRest,
    connect: () => (atRest ? connectAtRest(path) : connect(path)),
    /** Call it after reading. @throws {AppError} operator if the database was read without locks, and has been changed */
    requireUnchanged() {
      if (!atRest || fileState(path) === before) return;
      fail("operator", `another process has changed ${path} meanwhile: run the command again`);
    },
  };
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
