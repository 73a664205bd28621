import { Database } from "bun:sqlite";
import { existsSync, realpathSync, statSync } from "node:fs";
import { suffixes } from "../database-url.ts";
import { fail } from "../error.ts";
import { isAtRest } from "./at-rest.ts";
import { connect } from "./connection.ts";
import { isBusy } from "./errors.ts";

/** How long to wait for the lock. A command that migrates holds it for a few milliseconds. */
export const LOCK_TIMEOUT_MS = 500;

/** @returns the path of the lock file, which stays when the server has stopped */
export function lockPath(databasePath: string): string {
  return databasePath + suffixes.serverLock;
}

/**
 * Rejects a database that another process uses without our lock file: a server under another name (a hard link) or
 * after its lock file was deleted, or another program. It tries SQLite's own lock only if the file has another name or
 * no lock file, because a long-running command may hold that lock legitimately. Call it before this process opens the
 * database.
 * @throws {AppError} operator
 */
export function requireUnused(databasePath: string): void {
  if (!existsSync(databasePath)) return;
  if (existsSync(lockPath(databasePath)) && statSync(databasePath).nlink === 1) return;
  using db = connect(databasePath);
  db.run(`pragma busy_timeout = ${LOCK_TIMEOUT_MS}`);
  // In WAL mode an exclusive transaction alone does not exclude readers.
  db.run("pragma locking_mode = exclusive");
  try {
    db.run("begin exclusive");
    db.run("rollback");
  } catch (error) {
    if (!isBusy(error)) throw error;
    const server = "a server through a hard link or whose lock file was deleted";
    fail("operator", `the database is in use by ${server}, or by a program such as sqlite3`);
  }
}

/**
 * Takes the lock of a server, so that only one process at a time serves a database file. It is SQLite's exclusive
 * lock on an empty file next to the database. The operating system releases it when the process ends.
 * @param timeoutMs how long to wait for another process
 * @returns releases the lock when it is disposed of; `null` if another process holds the lock
 * @throws {SQLiteError} if the file cannot be created
 */
export function takeServerLock(databasePath: string, timeoutMs: number): Disposable | null {
  const lock = new Database(lockPath(databasePath), { create: true, strict: true });
  try {
    lock.run(`pragma busy_timeout = ${timeoutMs}`);
    lock.run("pragma journal_mode = memory");
    lock.run("begin exclusive");
  } catch (error) {
    lock.close();
    if (isBusy(error)) return null;
    throw error;
  }
  return { [Symbol.dispose]: () => lock.close() };
}

/** @returns whether another process holds the lock of a server */
export function isServed(databasePath: string): boolean {
  // A server has a log, and the lock file may be read-only.
  // The other files are next to the target of a symbolic link.
  const path = realpathSync(databasePath);
  if (isAtRest(path) || !existsSync(lockPath(path))) return false;
  using lock = takeServerLock(path, 0);
  return lock === null;
}
