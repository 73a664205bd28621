import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readSync,
  realpathSync,
  rmSync,
  statSync,
} from "node:fs";
import { dirname } from "node:path";
import { fail } from "../error.ts";
import { claimPartial, sync } from "../partial-file.ts";
import type { BackupSummary, RestoreStore } from "../store.ts";
import { verifyDatabase } from "./backup.ts";
import { connect } from "./connection.ts";
import { describeSqliteError, isBusy } from "./errors.ts";
import {
  copyOwnership,
  discard,
  linkOrCopy,
  PRIVATE_MODE,
  replaceFile,
  sidecarsOf,
} from "./files.ts";
import { migrate } from "./migrate.ts";
import { LOCK_TIMEOUT_MS, takeServerLock } from "./server-lock.ts";

/** What every database begins with. @see https://www.sqlite.org/fileformat2.html#magic_header_string */
const FILE_HEADER = "SQLite format 3\0";

function isDatabase(path: string): boolean {
  const file = openSync(path, "r");
  try {
    const head = Buffer.alloc(FILE_HEADER.length);
    readSync(file, head);
    return head.toString("latin1") === FILE_HEADER;
  } finally {
    closeSync(file);
  }
}

/** @returns the path of the backup itself @throws {AppError} operator */
function findBackup(from: string): string {
  if (!existsSync(from)) fail("operator", "there is no such file");
  // SQLite looks for what is beside the file itself, not beside a link to it.
  const path = realpathSync(from);
  if (!statSync(path).isFile()) fail("operator", "it is not a file");
  // SQLite takes an empty file for a new database.
  if (!isDatabase(path)) fail("operator", "the file is not a SQLite database");
  if (sidecarsOf(path).some((suffix) => suffix !== "-shm")) {
    fail("operator", "it is a database in use, not a backup: make one with `user-api backup`");
  }
  return path;
}

/** Copies a backup to a draft, brings its schema up to date, and proves that it is good. */
function prepareReplacement(from: string, temporary_path: string): BackupSummary {
  copyFileSync(from, temporary_path);
  // The backup may be one that nobody is to change.
  chmodSync(temporary_path, PRIVATE_MODE);
  {
    using db = connect(temporary_path);
    migrate(db);
    // One file, whatever the mode that the backup was last opened in.
    db.run("pragma journal_mode = delete");
  }
  const contents = verifyDatabase(temporary_path);
  sync(temporary_path);
  return contents;
}

/**
 * Makes a database one file, without a log; a broken one keeps what it has.
 * @throws {AppError} operator when another process has it open
 */
function mergeWal(path: string): void {
  // Of what is no database SQLite would throw the log away.
  if (!isDatabase(path)) return;
  try {
    using db = connect(path);
    db.run(`pragma busy_timeout = ${LOCK_TIMEOUT_MS}`);
    db.run("pragma journal_mode = delete");
  } catch (error) {
    if (isBusy(error)) fail("operator", "another process is using the database: stop it first");
  }
}

/**
 * Puts the draft in the place of a database, whose files get another name. The new one must never meet the
 * old one's log, even where that is all that is left of it.
 */
function replaceDatabase(temporary_path: string, path: string, previous_path: string): void {
  const sidecars = sidecarsOf(path);
  const previous_files = existsSync(path) ? ["", ...sidecars] : sidecars;
  for (const suffix of previous_files) linkOrCopy(path + suffix, previous_path + suffix);
  try {
    for (const suffix of sidecars) rmSync(path + suffix);
    replaceFile(temporary_path, path);
  } catch (error) {
    for (const suffix of sidecars) {
      if (!existsSync(path + suffix)) linkOrCopy(previous_path + suffix, path + suffix);
    }
    throw error;
  }
}

/** @see RestoreStore */
export const restoreSqlite: RestoreStore = async ({ from, database_url, now }) => {
  try {
    const backup = findBackup(from);
    mkdirSync(dirname(database_url), { recursive: true });
    const exists = existsSync(database_url);
    const path = exists ? realpathSync(database_url) : database_url;
    using resources = new DisposableStack();
    const lock = takeServerLock(path, LOCK_TIMEOUT_MS);
    if (lock === null) fail("operator", "a server is using the database: stop it first");
    resources.use(lock);
    // Not before: another restore may be writing its own.
    const temporary_path = claimPartial(path);
    resources.defer(() => discard(temporary_path));
    const contents = prepareReplacement(backup, temporary_path);
    if (exists) {
      copyOwnership(temporary_path, path);
      mergeWal(path);
    }
    const previous_path = `${path}.${now().toISOString().replaceAll(":", "-")}`;
    const had_previous = exists || sidecarsOf(path).length > 0;
    replaceDatabase(temporary_path, path, previous_path);
    return { ...contents, previous_path: had_previous ? previous_path : null };
  } catch (error) {
    throw describeSqliteError(`Cannot restore ${from}`, error);
  }
};
