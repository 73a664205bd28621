import { constants, Database } from "bun:sqlite";
import { existsSync, realpathSync, statSync } from "node:fs";
import { suffixes } from "../../base/database-url.ts";
import { fail } from "../../base/error.ts";
import { connect, isAtRest } from "./connection.ts";
import { isBusy } from "./errors.ts";
import { readHeader } from "./files.ts";

/** How long to wait for the lock. A command that migrates holds it for a few milliseconds. */
export const LOCK_TIMEOUT_MS = 500;

/** Once its file is moved or deleted, another server can take the lock. */
export type ServerLock = NonNullable<ReturnType<typeof takeServerLock>>;

/** @returns the path of the lock file, which stays when the server has stopped */
export function lockPath(databasePath: string): string {
  return databasePath + suffixes.serverLock;
}

function canLockAll(databasePath: string): boolean {
  try {
    using db = connect(databasePath);
    db.run(`pragma busy_timeout = ${LOCK_TIMEOUT_MS}`);
    // In WAL mode an exclusive transaction alone does not exclude readers.
    db.run("pragma locking_mode = exclusive");
    db.run("begin exclusive");
    db.run("rollback");
    return true;
  } catch (error) {
    // The next connection reports any other error, if it matters.
    return !isBusy(error);
  }
}

/**
 * Call it before the database is opened. A lock and a WAL belong to the name under which a process has opened the file.
 * @throws {AppError} operator if the file has several names, and another process has it open, under any of them
 */
export function requireOneName(databasePath: string): void {
  const { nlink } = statSync(databasePath);
  // Backups that are kept as hard links have no WAL, and may be read-only.
  if (nlink === 1 || readHeader(databasePath)?.usesWal !== true || isServed(databasePath)) return;
  if (canLockAll(databasePath)) return;
  const problem = `the file has ${nlink} names (hard links), and another process has it open`;
  fail("operator", `${problem}, perhaps a server under another name: stop that process`);
}

/**
 * Takes the lock of a server, so that only one process at a time serves a database file, or several that only read. It
 * is SQLite's lock on an empty file next to the database. The operating system releases it when the process ends.
 * @param kind servers that only read share the lock with each other
 * @returns releases the lock when it is disposed of; `null` if another process holds the lock
 * @throws {SQLiteError} if the file cannot be created
 */
export function takeServerLock(
  databasePath: string,
  kind: "exclusive" | "shared" = "exclusive",
  timeoutMs = LOCK_TIMEOUT_MS,
) {
  const path = lockPath(databasePath);
  const { SQLITE_OPEN_CREATE, SQLITE_OPEN_NOFOLLOW, SQLITE_OPEN_READWRITE } = constants;
  const flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW;
  const lock = new Database(path, flags);
  try {
    lock.run(`pragma busy_timeout = ${timeoutMs}`);
    lock.run("pragma journal_mode = memory");
    lock.run(kind === "exclusive" ? "begin exclusive" : "begin");
    // An empty transaction takes no lock.
    lock.run("select count(*) from sqlite_schema");
    return { path, opened: statSync(path), [Symbol.dispose]: () => lock.close() };
  } catch (error) {
    lock.close();
    if (isBusy(error)) return null;
    throw error;
  }
}

/** @returns whether another process holds the lock of a server that may write */
export function isServed(databasePath: string): boolean {
  // The other files are next to the target of a symbolic link.
  const path = realpathSync(databasePath);
  // A server has a WAL, and the lock file may be read-only.
  if (isAtRest(path) || !existsSync(lockPath(path))) return false;
  using lock = takeServerLock(path, "shared", 0);
  return lock === null;
}
