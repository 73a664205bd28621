import {
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  realpathSync,
  renameSync,
  rmSync,
} from "node:fs";
import { dirname } from "node:path";
import { AppError, fail, reason } from "../error.ts";
import type { RestoreStore } from "../store.ts";
import { put, verify } from "./backup.ts";
import { connect } from "./connection.ts";
import { takeServerLock } from "./lock.ts";
import { migrate } from "./migrate.ts";

/** How long to wait for the lock: a command beside it holds it for some milliseconds. */
const LOCK_PATIENCE_MS = 500;

/** What SQLite keeps beside a database: without it the last commits are missing. */
const BESIDE = ["-wal", "-shm"];

/** Copies a backup to a draft beside the database, and proves that it is good. */
function prepare(from: string, draft: string) {
  if (!existsSync(from)) fail("operator", "there is no such file");
  if (existsSync(`${from}-wal`)) {
    fail("operator", "it is a database in use, not a backup: make one with `user-api backup`");
  }
  copyFileSync(from, draft);
  {
    using db = connect(draft);
    migrate(db);
  }
  return verify(draft);
}

/** Brings the log of a database into it, so that it is one file; a broken one keeps its files. */
function settle(path: string): boolean {
  try {
    using db = connect(path);
    db.run("pragma wal_checkpoint(truncate)");
  } catch {
    return false;
  }
  return BESIDE.every((suffix) => !existsSync(path + suffix));
}

/** Gives the files of a database another name, the log first: a new database must never meet it. */
function setAside(path: string, aside: string): void {
  if (!settle(path)) {
    for (const suffix of BESIDE) {
      if (existsSync(path + suffix)) renameSync(path + suffix, aside + suffix);
    }
  }
  // A second name, so that there is a database at every moment.
  linkSync(path, aside);
}

/** @see RestoreStore */
export const restoreSqlite: RestoreStore = async ({ from, database_url, now }) => {
  const draft = `${database_url}.${process.pid}.partial`;
  try {
    mkdirSync(dirname(database_url), { recursive: true });
    const path = existsSync(database_url) ? realpathSync(database_url) : database_url;
    using lock = takeServerLock(path, LOCK_PATIENCE_MS);
    if (lock === null) fail("operator", "a server is using the database: stop it first");
    const contents = prepare(from, draft);
    const kept = existsSync(path) ? `${path}.${now().toISOString().replaceAll(":", "-")}` : null;
    if (kept !== null) setAside(path, kept);
    put(draft, path);
    return { ...contents, kept };
  } catch (error) {
    throw new AppError("operator", `Cannot restore ${from}: ${reason(error)}`);
  } finally {
    rmSync(draft, { force: true });
  }
};
