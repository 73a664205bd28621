import { copyFileSync, existsSync, mkdirSync, realpathSync, rmSync } from "node:fs";
import { dirname } from "node:path";
import { fail } from "../error.ts";
import type { Contents, RestoreStore } from "../store.ts";
import { verify } from "./backup.ts";
import { connect } from "./connection.ts";
import { alias, BESIDE, discard, draftOf, likeOwner, replace, sync } from "./files.ts";
import { LOCK_PATIENCE_MS, takeServerLock } from "./lock.ts";
import { migrate } from "./migrate.ts";
import { operatorError } from "./reasons.ts";

/** Another process has the database open. */
const BUSY = /^SQLITE_(BUSY|LOCKED)/;

/** @returns the path of the backup itself @throws {AppError} operator */
function findBackup(from: string): string {
  if (!existsSync(from)) fail("operator", "there is no such file");
  // SQLite looks for what is beside the file itself, not beside a link to it.
  const path = realpathSync(from);
  if (existsSync(`${path}-wal`) || existsSync(`${path}-journal`)) {
    fail("operator", "it is a database in use, not a backup: make one with `user-api backup`");
  }
  return path;
}

/** Copies a backup to a draft, brings its schema up to date, and proves that it is good. */
function prepare(from: string, draft: string): Contents {
  copyFileSync(from, draft);
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
  try {
    using db = connect(path);
    db.run(`pragma busy_timeout = ${LOCK_PATIENCE_MS}`);
    db.run("pragma journal_mode = delete");
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "";
    if (BUSY.test(code)) fail("operator", "another process is using the database: stop it first");
  }
}

/**
 * Puts the draft in the place of a database, which keeps its files under another name. The new one must
 * never meet the old one's log.
 */
function exchange(draft: string, path: string, kept: string): void {
  const beside = BESIDE.filter((suffix) => existsSync(path + suffix));
  for (const suffix of ["", ...beside]) alias(path + suffix, kept + suffix);
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
    const draft = draftOf(path);
    using resources = new DisposableStack();
    const lock = takeServerLock(path, LOCK_PATIENCE_MS);
    if (lock === null) fail("operator", "a server is using the database: stop it first");
    resources.use(lock);
    resources.defer(() => discard(draft));
    const contents = prepare(backup, draft);
    if (!exists) {
      replace(draft, path);
      return { ...contents, kept: null };
    }
    likeOwner(draft, path);
    settle(path);
    const kept = `${path}.${now().toISOString().replaceAll(":", "-")}`;
    exchange(draft, path, kept);
    return { ...contents, kept };
  } catch (error) {
    throw operatorError(`Cannot restore ${from}`, error);
  }
};
