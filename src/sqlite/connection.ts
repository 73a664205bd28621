import { Database } from "bun:sqlite";

/** How long opening waits for another process, e.g. one that migrates. */
const OPEN_PATIENCE_MS = 5_000;

/** Four times what the log is between two checkpoints. */
const LOG_LIMIT_BYTES = 64 * 1024 * 1024;

/**
 * Pages kept in memory, at most; as better-sqlite3 has it. Beyond SQLite's own 2,000 each row is a system
 * call more, which takes as long as the rest of its look-up. Small enough for a container of 128 MB.
 */
const CACHE_KIB = 16_000;

/** @param create whether a database that is not there is made */
export function connect(path: string, create = false): Database {
  const db = new Database(path, { create, readwrite: true, strict: true });
  db.run(`pragma busy_timeout = ${OPEN_PATIENCE_MS}`);
  return db;
}

/** Nothing that SQLite leaves off by default may stay off: durability, foreign keys. */
export function configure(db: Database): void {
  db.run("pragma journal_mode = wal");
  // One fsync a commit: with less, a power cut takes acknowledged writes with it.
  db.run("pragma synchronous = full");
  // On macOS fsync alone does not reach the disk.
  db.run("pragma fullfsync = on");
  // A log that grew while a backup read an older state does not stay as large.
  db.run(`pragma journal_size_limit = ${LOG_LIMIT_BYTES}`);
  db.run(`pragma cache_size = -${CACHE_KIB}`);
  db.run("pragma foreign_keys = on");
  db.run("pragma trusted_schema = off");
}

/** @returns the value of a pragma that is a number */
export function pragma(db: Database, name: string): number {
  return Number(db.prepare<Record<string, number>, []>(`pragma ${name}`).get()?.[name]);
}
