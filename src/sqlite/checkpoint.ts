/**
 * Brings the write-ahead log into the database on another thread. SQLite would do it inside a commit,
 * and two syncs and a thousand pages more would hold up every request of that moment.
 */
import type { Database } from "bun:sqlite";

/** Pages in the log after which it is due; SQLite's own default. */
const DUE_PAGES = 1000;

export interface Checkpoints {
  /**
   * To be called after each commit. While it runs nothing may be written, so that it reaches the end
   * of the log, and the next commit begins the log anew.
   * @returns resolved when it has been tried; `null` when none is due
   */
  start(): Promise<void> | null;
  close(): void;
}

function createWorker(): Worker {
  // Of one folder in the source and in the binary alike: see `--entry-naming` in scripts/build.sh.
  const worker = new Worker(new URL("./checkpoint.worker.ts", import.meta.url).href);
  // An idle one is no reason for the process to go on.
  worker.unref();
  return worker;
}

/** @param db whose own checkpoints are off from now on */
export function createCheckpoints(db: Database): Checkpoints {
  const measure = db.prepare<{ log: number }, []>("pragma wal_checkpoint(noop)");
  db.run("pragma wal_autocheckpoint = 0");
  let worker: Worker | null = null;
  let broken = false;
  /** Pages that the last one has left in the log, e.g. since another process reads an older state. */
  let left = 0;

  function logPages(): number {
    try {
      return measure.get()?.log ?? 0;
    } catch {
      // A disk that cannot even be asked is the next commit's to refuse.
      return 0;
    }
  }

  function run(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    worker ??= createWorker();
    // One that fails is no loss: all is in the log, and the next comes with the next pages.
    worker.onmessage = () => resolve();
    worker.onerror = () => {
      // Without the thread SQLite does as it always does. Nobody may wait for a dead one.
      broken = true;
      db.run(`pragma wal_autocheckpoint = ${DUE_PAGES}`);
      resolve();
    };
    worker.postMessage(db.filename);
    return promise;
  }

  return {
    start() {
      if (broken) return null;
      const pages = logPages();
      // A log that has become shorter has begun anew.
      left = Math.min(left, pages);
      if (pages - left < DUE_PAGES) return null;
      left = pages;
      return run();
    },
    close() {
      worker?.terminate();
    },
  };
}
