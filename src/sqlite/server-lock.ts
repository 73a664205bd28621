import { Database } from "bun:sqlite";
import { existsSync, statSync } from "node:fs";
import { fail, systemCode } from "../error.ts";
import { connect } from "./connection.ts";
import { isBusy } from "./errors.ts";

/** How long to wait for the lock: a command beside a server holds it for some milliseconds. */
export const LOCK_TIMEOUT_MS = 500;

/** Holds the lock until it is disposed of, or the process ends however it ends. */
export type ServerLock = Disposable;

function lockPath(database_path: string): string {
  return `${database_path}-serving`;
}

/**
 * Refuses a database that another process uses although nobody holds its lock file: the file has a second
 * name (a hard link), or its lock file was deleted. SQLite's own locks belong to the file, not to its name. Only
 * then are they asked: in all other cases a command, such as a long export, may have the database open.
 * @throws {AppError} operator
 */
export function requireUnused(database_path: string): void {
  if (!existsSync(database_path)) return;
  if (existsSync(lockPath(database_path)) && statSync(database_path).nlink === 1) return;
  using db = connect(database_path);
  db.run(`pragma busy_timeout = ${LOCK_TIMEOUT_MS}`);
  // With write-ahead logging a transaction alone excludes no reader.
  db.run("pragma locking_mode = exclusive");
  try {
    db.run("begin exclusive");
    db.run("rollback");
  } catch (error) {
    if (!isBusy(error)) throw error;
    const cause = "the file has another name, or its lock file was deleted";
    fail("operator", `another process is using it (${cause})`);
  }
}

/**
 * One process at a time may serve a database file, and say so to the others: it keeps SQLite's own
 * exclusive lock on an empty file beside it, which the operating system drops with the process.
 * @param timeout_ms how long to wait for the other: a command holds it for some milliseconds, too
 * @returns `null` when another process holds the lock
 * @throws {SQLiteError} when the file cannot be made
 */
export function takeServerLock(database_path: string, timeout_ms: number): ServerLock | null {
  const lock = new Database(lockPath(database_path), { create: true, strict: true });
  try {
    lock.run(`pragma busy_timeout = ${timeout_ms}`);
    lock.run("pragma journal_mode = memory");
    lock.run("begin exclusive");
  } catch (error) {
    lock.close();
    if (systemCode(error) === "SQLITE_BUSY") return null;
    throw error;
  }
  return { [Symbol.dispose]: () => lock.close() };
}
