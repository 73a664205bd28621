/** Reads a database that no process has open, without leaving a trace, also where nothing can be written. */
import { constants, Database } from "bun:sqlite";
import { suffixes } from "../../base/database-url.ts";
import { fail } from "../../base/error.ts";
import { requireOwnNeighbours } from "../../base/trusted-path.ts";
import { connect } from "./connection.ts";
import { fileState, sidecarsOf } from "./files.ts";

export interface DatabaseFile {
  readonly path: string;
  /** Whether the database is read without locks. */
  readonly atRest: boolean;
  connect(): Database;
  /**
   * Call it after reading and before using the result.
   * @throws {AppError} operator if the database is read without locks and has been changed since
   */
  requireUnchanged(): void;
}

/** @returns whether there is no WAL, in which case the file is complete. A server has one as long as it runs */
export function isAtRest(path: string): boolean {
  return sidecarsOf(path).every((suffix) => suffix === suffixes.shm);
}

/** SQLite reads neither a WAL nor locks, and does not load the CHECK constraints. */
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

/** @returns a file that is locked, as SQLite does by default. @throws as {@link requireOwnNeighbours} */
export function openShared(path: string): DatabaseFile {
  requireOwnNeighbours(path);
  return { path, atRest: false, connect: () => connect(path), requireUnchanged() {} };
}

/**
 * Call it before the first connection. A server may start meanwhile. It first writes to the WAL, which is not read. When
 * it changes the file itself, which would mix two states, `requireUnchanged` notices.
 * @returns `null` if the database has a WAL
 */
export function openFrozen(path: string): DatabaseFile | null {
  // First, or a server that starts in between could have changed a part of the file.
  const before = fileState(path);
  if (!isAtRest(path)) return null;
  return {
    path,
    atRest: true,
    connect: () => connectAtRest(path),
    requireUnchanged() {
      if (fileState(path) === before) return;
      fail("operator", `another process has changed ${path} meanwhile: run the command again`);
    },
  };
}
