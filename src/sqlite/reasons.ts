import { AppError, systemCode } from "../error.ts";

/** What an error's code means to an operator; the first that it begins with. */
const reasons: readonly (readonly [code: string, meaning: string])[] = [
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
  return reasons.find(([prefix]) => code.startsWith(prefix))?.[1] ?? null;
}

/**
 * @param what could not be done, e.g. `Cannot open a.db`
 * @returns the line for the operator; an error that is none of theirs as it is
 */
export function operatorError(what: string, error: unknown): unknown {
  if (error instanceof AppError) return new AppError(error.code, `${what}: ${error.message}`);
  const meaning = meaningOf(error);
  return meaning === null ? error : new AppError("operator", `${what}: ${meaning}`);
}
