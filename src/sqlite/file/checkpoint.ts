/** Checkpoints the WAL in another thread: inside a commit, two syncs and thousands of pages would delay every other request. */
import type { Database } from "bun:sqlite";
import { CHECKPOINT_PAGES } from "./connection.ts";
import type { FileWatch } from "./file-watch.ts";
import { createStatementThread } from "./thread.ts";

/** Without new pages, an incomplete checkpoint is repeated after this time. */
const RETRY_MS = 10_000;

export type Checkpointer = ReturnType<typeof createCheckpointer>;

/** @param archive runs the checkpoints, if there is one, after reading the WAL */
export function createCheckpointer(
  db: Database,
  files: FileWatch,
  archive: { checkpoint(): Promise<unknown> } | null = null,
  nowMs = () => performance.now(),
) {
  db.run("pragma wal_autocheckpoint = 0");
  const thread = createStatementThread(db.filename);
  let isBroken = false;
  /** Pages of the WAL at the last attempt, which leaves them if another process is reading an older state, for example. */
  let pagesAtLast = 0;
  let lastMs = nowMs();

  async function run(): Promise<void> {
    try {
      // If the disk fails, everything is still in the WAL. More pages, or time, trigger the next attempt.
      if (archive === null) await thread.run("pragma wal_checkpoint(passive)");
      else await archive.checkpoint();
    } catch {
      // Without the thread, SQLite runs checkpoints inside commits again.
      isBroken = true;
      db.run(`pragma wal_autocheckpoint = ${CHECKPOINT_PAGES}`);
    }
  }

  return {
    /** Starts the thread. Call it before connections are accepted: when open files are used up, starting one ends the process. */
    prepare: run,
    /** Call it after each commit. Write nothing before it resolves: the next commit restarts the WAL. `null` if none is due. */
    start(): Promise<void> | null {
      if (isBroken) return null;
      const { all: pages, uncopied } = files?.walPages() ?? { all: 0, uncopied: 0 };
      // A WAL that has become shorter was restarted.
      pagesAtLast = Math.min(pagesAtLast, pages);
      const isLate = uncopied >= CHECKPOINT_PAGES && nowMs() - lastMs >= RETRY_MS;
      if (pages - pagesAtLast < CHECKPOINT_PAGES && !isLate) return null;
      pagesAtLast = pages;
      lastMs = nowMs();
      return run();
    },
    close: () => thread.close(),
  };
}
