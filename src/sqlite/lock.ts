import { Database } from "bun:sqlite";
import { systemCode } from "../error.ts";

/** How long to wait for the lock: a command beside a server holds it for some milliseconds. */
export const LOCK_PATIENCE_MS = 500;

/** Holds the lock until it is disposed of, or the process ends however it ends. */
export type ServerLock = Disposable;

/**
 * One process at a time may serve a database file, and say so to the others: it keeps SQLite's own
 * exclusive lock on an empty file beside it, which the operating system drops with the process.
 * @param patience_ms how long to wait for the other: a command holds it for some milliseconds, too
 * @returns `null` when another process holds the lock
 * @throws {SQLiteError} when the file cannot be made
 */
export function takeServerLock(database_path: string, patience_ms: number): ServerLock | null {
  const lock = new Database(`${database_path}-serving`, { create: true, strict: true });
  try {
    lock.run(`pragma busy_timeout = ${patience_ms}`);
    lock.run("pragma journal_mode = memory");
    lock.run("begin exclusive");
  } catch (error) {
    lock.close();
    if (systemCode(error) === "SQLITE_BUSY") return null;
    throw error;
  }
  return { [Symbol.dispose]: () => lock.close() };
}
