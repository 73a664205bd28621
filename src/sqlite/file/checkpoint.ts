/**
 * Checkpoints the write-ahead log in another thread. SQLite would do it inside a commit, where two syncs and
 * thousands of pages would delay every concurrent request.
 */
import type { Database } from "bun:sqlite";
import { fail } from "../../base/error.ts";
import { CHECKPOINT_PAGES, sqliteVersion } from "./connection.ts";
import { createThread } from "./thread.ts";

/** The first SQLite that measures the WAL without a checkpoint. On macOS the system may provide an older one. */
const NOOP_SINCE = "3.51.0";

export interface Checkpointer {
  /**
   * Starts the thread with a first checkpoint. Call it before a server accepts connections: if they use up the open
   * files of the process, a thread can no longer start, and the attempt ends the process.
   */
  prepare(): Promise<void>;
  /**
   * Starts a checkpoint if one is due. Call it after each commit, and do not write until it has resolved: then it
   * reaches the end of the WAL, and the next commit restarts the WAL.
   * @returns resolves after the attempt; `null` if none is due
   */
  start(): Promise<void> | null;
  close(): void;
}

/**
 * @param db SQLite's automatic checkpoints of this connection are disabled, if SQLite is new enough
 * @param archive runs the checkpoints, if there is one, after reading the WAL
 * @throws {AppError} operator if there is an archive and SQLite is too old for it
 */
export function createCheckpointer(
  db: Database,
  archive: { checkpoint(): Promise<unknown> } | null = null,
): Checkpointer {
  // An older SQLite ignores `noop` and would run a checkpoint on this thread.
  if (Bun.semver.order(sqliteVersion(db), NOOP_SINCE) < 0) {
    if (archive !== null) fail("operator", `an archive needs SQLite ${NOOP_SINCE} or newer`);
    return { prepare: async () => {}, start: () => null, close() {} };
  }
  const measure = db.prepare<{ log: number }, []>("pragma wal_checkpoint(noop)");
  db.run("pragma wal_autocheckpoint = 0");
  const thread = createThread(db.filename);
  let broken = false;
  /** Pages that the last checkpoint left in the WAL, e.g. because another process was reading an older state. */
  let pagesLeft = 0;

  function walPages(): number {
    try {
      return measure.get()?.log ?? 0;
    } catch {
      // The disk is failing. The next commit reports that.
      return 0;
    }
  }

  async function run(): Promise<void> {
    try {
      // If the disk fails, everything is still in the WAL. More pages trigger the next attempt.
      if (archive === null) await thread.run("pragma wal_checkpoint(passive)");
      else await archive.checkpoint();
    } catch {
      // Without the thread, SQLite runs checkpoints inside commits again.
      broken = true;
      db.run(`pragma wal_autocheckpoint = ${CHECKPOINT_PAGES}`);
    }
  }

  return {
    prepare: run,
    start() {
      if (broken) return null;
      const pages = walPages();
      // A WAL that has become shorter was restarted.
      pagesLeft = Math.min(pagesLeft, pages);
      if (pages - pagesLeft < CHECKPOINT_PAGES) return null;
      pagesLeft = pages;
      return run();
    },
    close: () => thread.close(),
  };
}
