/** Classifies errors of SQLite as transient or as damage, and translates them for operators. */
import { CFunction, type Pointer, read } from "bun:ffi";
import { constants, type Database, SQLiteError } from "bun:sqlite";
import { AppError, fileProblem, systemCode } from "../../base/error.ts";
import { fileSystemOf } from "../../base/mounts.ts";
import { freeBytesOf } from "./files.ts";

const BUSY = /^SQLITE_(BUSY|LOCKED)/;
/** The disk or the operating system failed and may recover. */
const TRANSIENT = /^SQLITE_(BUSY|LOCKED|FULL|IOERR|READONLY|CANTOPEN|NOMEM|PROTOCOL)/;
/** SQLite also reports a read that fails with EIO as SQLITE_CORRUPT. */
const DAMAGE = /^SQLITE_(CORRUPT|NOTADB)/;
/** What SQLite says, with a code for all errors of a statement, about values that none of our statements writes. */
const DAMAGED_VALUE = /^(malformed JSON|JSON cannot hold BLOB values)$/;

function hasCode(error: unknown, pattern: RegExp): boolean {
  return error instanceof SQLiteError && pattern.test(error.code ?? "");
}

function isDamagedValue(error: unknown): boolean {
  return error instanceof SQLiteError && DAMAGED_VALUE.test(error.message);
}

export function isBusy(error: unknown): boolean {
  return hasCode(error, BUSY);
}

type Verb = "read" | "written";

export function unavailableError(verb: Verb, cause: unknown): AppError {
  const message = `the database cannot be ${verb} at the moment`;
  return new AppError("unavailable", message, { cause });
}

/** EIO, ENXIO and ERANGE, on Linux and macOS: SQLite takes all three for damage. */
const IO_ERRNOS: readonly (number | undefined)[] = [5, 6, 34];

/** Where `sqlite3_io_methods` has `xFileControl`. @see https://www.sqlite.org/c3ref/io_methods.html */
const FILE_CONTROL_OFFSET = 80;

function readWalErrno(db: Database, errno: Int32Array): void {
  const wal = new BigUint64Array(1);
  db.fileControl(constants.SQLITE_FCNTL_JOURNAL_POINTER, wal);
  const file = Number(wal[0]) as Pointer;
  const methods = read.ptr(file) as Pointer | 0;
  const ptr = methods && (read.ptr(methods, FILE_CONTROL_OFFSET) as Pointer | 0);
  // It is not open, or a journal in memory.
  if (ptr === 0) return;
  const control = CFunction({ ptr, args: ["ptr", "i32", "ptr"], returns: "i32" });
  control(file, constants.SQLITE_FCNTL_LAST_ERRNO, errno);
  control.close();
}

/** @returns whether the last call that failed on the file or its WAL, perhaps long ago, was an I/O error: SQLite says damage */
export function hadIoError(db: Database): boolean {
  // An `int` of C; Bun requires eight bytes.
  const errno = new Int32Array(2);
  db.fileControl(constants.SQLITE_FCNTL_LAST_ERRNO, errno);
  if (IO_ERRNOS.includes(errno[0])) return true;
  try {
    readWalErrno(db, errno);
  } catch {
    // A call needs executable memory, which e.g. `MemoryDenyWriteExecute` forbids. Then that of the WAL is unknown.
  }
  return IO_ERRNOS.includes(errno[0]);
}

export const IO_ERROR = "I/O error while reading the file";

function ioError(): Error {
  return Object.assign(new Error(IO_ERROR), { code: "SQLITE_IOERR" });
}

/** @returns an error with the code SQLITE_IOERR if SQLite has reported one as damage; any other error, unchanged */
export function ioErrorOf(error: unknown, db: Database): unknown {
  return hasCode(error, DAMAGE) && hadIoError(db) ? ioError() : error;
}

/** Runs work of a command on a connection. @throws as {@link ioErrorOf} */
export function withIoErrors<Result>(db: Database, work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    throw ioErrorOf(error, db);
  }
}

/** @returns an AppError `unavailable` or `damaged`; any error that storage did not cause, unchanged */
export function storageError(error: unknown, db: Database, verb: Verb, table: string): unknown {
  if (hasCode(error, TRANSIENT)) return unavailableError(verb, error);
  if (!hasCode(error, DAMAGE) && !isDamagedValue(error)) return error;
  if (hadIoError(db)) return unavailableError(verb, ioError());
  return new AppError(
    "damaged",
    `the database file is damaged: cannot ${verb === "read" ? "read" : "write"} table ${table}; run \`user-api check\` and restore a backup`,
    { cause: error },
  );
}

/** Messages for operators, where `fileProblem` has none or another one. The first one whose codes match applies. */
const errorMessages: readonly (readonly [codes: RegExp, message: string])[] = [
  [/^SQLITE_CANTOPEN/, "cannot open or create the file: check the directory and its permissions"],
  [/^SQLITE_READONLY/, "the file or its directory is not writable"],
  [/^SQLITE_NOTADB/, "the file is not a SQLite database"],
  [/^SQLITE_CORRUPT/, "the file is damaged"],
  [/^SQLITE_BUSY/, "the database is in use by another process"],
  [/^SQLITE_FULL/, "the disk is full"],
  [/^SQLITE_IOERR/, "I/O error"],
  [/^EPERM/, "permission denied"],
  [/^ENOENT/, "the directory does not exist"],
  [/^EEXIST/, "a part of the path is not a directory"],
];

export function meaningOf(error: unknown): string | null {
  const code = isDamagedValue(error) ? "SQLITE_CORRUPT" : systemCode(error);
  return errorMessages.find(([codes]) => codes.test(code))?.[1] ?? fileProblem(error);
}

/** More than the index of a WAL needs at first. */
const MIN_FREE_BYTES = 2 ** 16;

/** SQLite reports an index that cannot grow, or be shared, as an I/O error. @returns `null` for any other error */
function explainIndexError(error: unknown, path: string): string | null {
  const code = systemCode(error);
  if (!code.startsWith("SQLITE_IOERR")) return null;
  if ((freeBytesOf(path) ?? MIN_FREE_BYTES) < MIN_FREE_BYTES) return "the disk is full";
  if (!code.startsWith("SQLITE_IOERR_SHM")) return null;
  return `its file system (${fileSystemOf(path) ?? "unknown"}) lacks the shared memory that SQLite needs: use a local disk`;
}

/** @param attempt e.g. `Cannot open a.db`. @returns an AppError; an error without a known code, unchanged */
export function describeSqliteError(attempt: string, error: unknown, path?: string): unknown {
  if (error instanceof AppError) return new AppError(error.code, `${attempt}: ${error.message}`);
  const indexProblem = path === undefined ? null : explainIndexError(error, path);
  const message = indexProblem ?? meaningOf(error);
  return message === null ? error : new AppError("operator", `${attempt}: ${message}`);
}
