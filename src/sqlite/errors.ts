/** Classifies the errors of SQLite: transient errors of storage, damage, and what an operator should read. */
import { SQLiteError } from "bun:sqlite";
import { AppError, systemCode } from "../error.ts";

/** Another connection holds a lock. */
const BUSY = /^SQLITE_(BUSY|LOCKED)/;
/** The disk or the system failed, and may recover. */
const TRANSIENT = /^SQLITE_(BUSY|LOCKED|FULL|IOERR|READONLY|CANTOPEN|NOMEM|PROTOCOL)/;
/** SQLite also reports a read that fails with EIO as SQLITE_CORRUPT. */
const DAMAGE = /^SQLITE_(CORRUPT|NOTADB)/;

function hasCode(error: unknown, pattern: RegExp): boolean {
  return error instanceof SQLiteError && pattern.test(error.code ?? "");
}

export function isBusy(error: unknown): boolean {
  return hasCode(error, BUSY);
}

/** Whether the file or its disk is the cause, and not the statement. */
export function isStorageError(error: unknown): boolean {
  return hasCode(error, TRANSIENT) || hasCode(error, DAMAGE);
}

export function unavailableError(verb: "read" | "written", cause: unknown): AppError {
  const error = new AppError("unavailable", `the database cannot be ${verb} at the moment`);
  error.cause = cause;
  return error;
}

export interface FailedWork {
  readonly verb: "read" | "written";
  /** The table that was read or written, for the log. */
  readonly table: string;
  /** Whether the operating system still reads the file. If not, the disk fails, and the file may be sound. */
  readonly isReadable: () => boolean;
}

/**
 * Translates an error of work that was tried twice: SQLite reports a read that the disk refuses once and a
 * damaged page with the same code.
 * @returns an AppError `unavailableError` or `damaged`; any error that storage did not cause, unchanged
 */
export function storageError(error: unknown, { verb, table, isReadable }: FailedWork): unknown {
  if (hasCode(error, TRANSIENT)) return unavailableError(verb, error);
  if (!hasCode(error, DAMAGE)) return error;
  if (!isReadable()) {
    return unavailableError(verb, new Error("the disk fails to read the file", { cause: error }));
  }
  const damaged = new AppError(
    "damaged",
    `the database file is damaged: cannot ${verb === "read" ? "read" : "write"} table ${table}; run \`user-api check\` and restore a backup`,
  );
  damaged.cause = error;
  return damaged;
}

/** What an error's code means to an operator; the first that it begins with. */
const error_messages: readonly (readonly [code: string, message: string])[] = [
  ["SQLITE_CANTOPEN", "the file cannot be opened or made; check the folder and its permissions"],
  ["SQLITE_READONLY", "the file or its folder cannot be written"],
  ["SQLITE_NOTADB", "the file is not a SQLite database"],
  ["SQLITE_CORRUPT", "the file is damaged"],
  ["SQLITE_BUSY", "another process is using it"],
  ["SQLITE_FULL", "the disk is full"],
  ["SQLITE_IOERR", "the disk fails"],
  ["EACCES", "there is no permission for it"],
  ["EPERM", "there is no permission for it"],
  ["EROFS", "the disk is read-only"],
  ["ENOSPC", "the disk is full"],
  ["EIO", "the disk fails"],
  ["ENOENT", "its folder is not there, or cannot be made"],
  ["ENOTDIR", "a part of its path is not a folder"],
  ["EISDIR", "it is a folder"],
  ["EEXIST", "a part of its path is not a folder"],
];

/** @returns what an error means to an operator; `null` if it has no known code */
export function meaningOf(error: unknown): string | null {
  const code = systemCode(error);
  return error_messages.find(([prefix]) => code.startsWith(prefix))?.[1] ?? null;
}

/**
 * @param attempt could not be done, e.g. `Cannot open a.db`
 * @returns the line for the operator; an error that is none of theirs as it is
 */
export function describeSqliteError(attempt: string, error: unknown): unknown {
  if (error instanceof AppError) return new AppError(error.code, `${attempt}: ${error.message}`);
  const message = meaningOf(error);
  return message === null ? error : new AppError("operator", `${attempt}: ${message}`);
}
