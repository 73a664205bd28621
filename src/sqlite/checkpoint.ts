/**
 * Brings the write-ahead log into the database in another thread. SQLite would do it inside a commit,
 * and two syncs and thousands of pages more would hold up every request of that moment.
 */
import type { Database } from "bun:sqlite";
import { CHECKPOINT_PAGES } from "./connection.ts";
import { createThread } from "./thread.ts";

/** SQLite 3.51 measures the log without a checkpoint; macOS may bring an older one of its own. */
const NOOP_SINCE_MINOR = 51;

function versionOf(db: Database): number[] {
  const row = db.prepare<{ version: string }, []>("select sqlite_version() as version").get();
  return (row?.version ?? "").split(".").map(Number);
}

export interface Checkpointer {
  /**
   * To be called after each commit. While it runs nothing may be written, so that it reaches the end
   * of the log, and the next commit begins the log anew.
   * @returns resolved when it has been tried; `null` when none is due
   */
  start(): Promise<void> | null;
  close(): void;
}

/** @param db whose own checkpoints are off from now on, where SQLite is new enough */
export function createCheckpointer(db: Database): Checkpointer {
  // An older SQLite takes this for a checkpoint, which is what must not happen here.
  const [major = 0, minor = 0] = versionOf(db);
  if (major === 3 && minor < NOOP_SINCE_MINOR) return { start: () => null, close() {} };
  const measure = db.prepare<{ log: number }, []>("pragma wal_checkpoint(noop)");
  db.run("pragma wal_autocheckpoint = 0");
  const thread = createThread(db.filename);
  let broken = false;
  /** Pages that the last one has left in the log, e.g. since another process reads an older state. */
  let pages_left = 0;

  function walPages(): number {
    try {
      return measure.get()?.log ?? 0;
    } catch {
      // A disk that cannot even be asked is the next commit's to refuse.
      return 0;
    }
  }

  async function run(): Promise<void> {
    try {
      // Where the disk refuses, all is in the log, and the next attempt comes with the next pages.
      await thread.run("pragma wal_checkpoint(passive)");
    } catch {
      // Without the thread SQLite does it inside a commit.
      broken = true;
      db.run(`pragma wal_autocheckpoint = ${CHECKPOINT_PAGES}`);
    }
  }

  return {
    start() {
      if (broken) return null;
      const pages = walPages();
      // A log that has become shorter has begun anew.
      pages_left = Math.min(pages_left, pages);
      if (pages - pages_left < CHECKPOINT_PAGES) return null;
      pages_left = pages;
      return run();
    },
    close: () => thread.close(),
  };
}
