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
import { fail, systemCode } from "../error.ts";
import { claimPartial, sync } from "../partial-file.ts";
import type { Contents, RestoreStore } from "../store.ts";
import { verify } from "./backup.ts";
import { connect } from "./connection.ts";
import { alias, besideOf, discard, likeOwner, PRIVATE, replace } from "./files.ts";
import { LOCK_PATIENCE_MS, takeServerLock } from "./lock.ts";
import { migrate } from "./migrate.ts";
import { operatorError } from "./reasons.ts";

/** Another process has the database open. */
const BUSY = /^SQLITE_(BUSY|LOCKED)/;

/** What every database begins with. @see https://www.sqlite.org/fileformat2.html#magic_header_string */
const MAGIC = "SQLite format 3\0";

function isDatabase(path: string): boolean {
  const file = openSync(path, "r");
  try {
    const head = Buffer.alloc(MAGIC.length);
    readSync(file, head);
    return head.toString("latin1") === MAGIC;
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
  if (besideOf(path).some((suffix) => suffix !== "-shm")) {
    fail("operator", "it is a database in use, not a backup: make one with `user-api backup`");
  }
  return path;
}

/** Copies a backup to a draft, brings its schema up to date, and proves that it is good. */
function prepare(from: string, draft: string): Contents {
  copyFileSync(from, draft);
  // The backup may be one that nobody is to change.
  chmodSync(draft, PRIVATE);
  {
    using db = connect(draft);
    migrate(db);
    // One file, whatever the mode that the backup was last opened in.
    db.run("pragma journal_mode = delete");
  }
  const contents = verify(draft);
  sync(draft);
  return contents;
}

/**
 * Makes a database one file, without a log; a broken one keeps what it has.
 * @throws {AppError} operator when another process has it open
 */
function settle(path: string): void {
  // Of what is no database SQLite would throw the log away.
  if (!isDatabase(path)) return;
  try {
    using db = connect(path);
    db.run(`pragma busy_timeout = ${LOCK_PATIENCE_MS}`);
    db.run("pragma journal_mode = delete");
  } catch (error) {
    if (BUSY.test(systemCode(error)))
      fail("operator", "another process is using the database: stop it first");
  }
}

/**
 * Puts the draft in the place of a database, whose files get another name. The new one must never meet the
 * old one's log, even where that is all that is left of it.
 */
function exchange(draft: string, path: string, kept: string): void {
  const beside = besideOf(path);
  const old = existsSync(path) ? ["", ...beside] : beside;
  for (const suffix of old) alias(path + suffix, kept + suffix);
  try {
    for (const suffix of beside) rmSync(path + suffix);
    replace(draft, path);
  } catch (error) {
    for (const suffix of beside) {
      if (!existsSync(path + suffix)) alias(kept + suffix, path + suffix);
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
    const draft = claimPartial(path);
    using resources = new DisposableStack();
    const lock = takeServerLock(path, LOCK_PATIENCE_MS);
    if (lock === null) fail("operator", "a server is using the database: stop it first");
    resources.use(lock);
    resources.defer(() => discard(draft));
    const contents = prepare(backup, draft);
    if (exists) {
      likeOwner(draft, path);
      settle(path);
    }
    const kept = `${path}.${now().toISOString().replaceAll(":", "-")}`;
    const found = exists || besideOf(path).length > 0;
    exchange(draft, path, kept);
    return { ...contents, kept: found ? kept : null };
  } catch (error) {
    throw operatorError(`Cannot restore ${from}`, error);
  }
};
