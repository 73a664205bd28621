/** The name of the change feed. A database that may have lost changes gets a new one: a backup, or an older state of a file. */
import type { Database } from "bun:sqlite";
import { statSync, utimesSync } from "node:fs";
import { lockPath } from "../file/server-lock.ts";

/** Starts a new feed with the changes that are there. */
export function renameFeed(db: Database): void {
  db.run("update feed set name = lower(hex(randomblob(10)))");
}

/** @returns the identity of the file that the last server used; `null` if there is none */
function lastFile(db: Database): string | null {
  return db.prepare<{ file: string | null }, []>("select file from feed").get()?.file ?? null;
}

function markMsOf(path: string): number {
  return Math.floor(statSync(lockPath(path)).mtimeMs);
}

function setMark(path: string, timeMs: number): void {
  const time = new Date(timeMs);
  try {
    utimesSync(lockPath(path), time, time);
  } catch {
    // Only its owner may change the time of a file. Then the inode alone identifies the database.
  }
}

/** @returns what a copy of the file does not have: the inode and the time of its creation, and the mark */
function identityOf(path: string, mark: number): string {
  const { ino, birthtimeMs } = statSync(path);
  return `${ino}:${birthtimeMs}:${mark}`;
}

/**
 * Starts a new feed unless this is the file that the last call had, in a state after that call. The time of the lock file
 * is a mark, which an older state of the database, written over the same file, does not have. Call it under the lock of
 * a server.
 * @param keepsName whether the file is a copy that lacks no change which a client can have seen
 * @throws whatever `write` throws if a new feed is needed
 */
export async function continueFeed(
  db: Database,
  path: string,
  write: (work: () => void) => Promise<void>,
  keepsName = false,
): Promise<void> {
  const last = markMsOf(path);
  const isSame = lastFile(db) === identityOf(path, last);
  // Later than the last one, also if the clock has gone back.
  setMark(path, Math.max(Date.now(), last + 1));
  const file = identityOf(path, markMsOf(path));
  try {
    await write(() => {
      if (!isSame && !keepsName) renameFeed(db);
      db.run("update feed set file = ?", [file]);
    });
  } catch (error) {
    // A write that was rejected can be committed, e.g. if only the archive does not have it.
    if (lastFile(db) !== file) setMark(path, last);
    // The mark is valid, and a server can start although it cannot write now.
    if (!isSame) throw error;
  }
}
