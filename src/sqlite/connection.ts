import { Database } from "bun:sqlite";

/** How long opening waits for another process, e.g. one that migrates. */
const OPEN_TIMEOUT_MS = 5_000;

/**
 * Pages in the log after which it is due to be brought into the database: 16 MB. Of SQLite's own 1,000 most
 * are written again soon: with four times as many each is copied less often, and 7 % more orders are placed
 * a second.
 */
export const CHECKPOINT_PAGES = 4000;

/** Four times what the log is between two checkpoints. */
const WAL_LIMIT_BYTES = 4 * CHECKPOINT_PAGES * 4096;

/** @param create whether a database that is not there is made */
export function connect(path: string, create = false): Database {
  const db = new Database(path, { create, readwrite: true, strict: true });
  db.run(`pragma busy_timeout = ${OPEN_TIMEOUT_MS}`);
  return db;
}

/** Nothing that SQLite leaves off by default may stay off: durability, foreign keys. */
export function configure(db: Database): void {
  db.run("pragma journal_mode = wal");
  // One fsync a commit: with less, a power cut takes acknowledged writes with it.
  db.run("pragma synchronous = full");
  // On macOS fsync alone does not reach the disk.
  db.run("pragma fullfsync = on");
  db.run(`pragma wal_autocheckpoint = ${CHECKPOINT_PAGES}`);
  // A log that grew while a backup read an older state does not stay as large.
  db.run(`pragma journal_size_limit = ${WAL_LIMIT_BYTES}`);
  db.run("pragma foreign_keys = on");
  db.run("pragma trusted_schema = off");
}

/** @returns the value of a pragma that is a number */
export function pragma(db: Database, name: string): number {
  return Number(db.prepare<Record<string, number>, []>(`pragma ${name}`).get()?.[name]);
}
