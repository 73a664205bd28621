/**
 * The group commit: writes that arrive in one turn of the event loop, or in the next one, share one
 * transaction and so one fsync; each is answered after that fsync.
 */
import type { Database } from "bun:sqlite";
import { AppError } from "../error.ts";
import type { StoreOptions } from "../store.ts";
import type { Checkpointer } from "./checkpoint.ts";
import { isBusy, isStorageError, storageError, unavailableError } from "./errors.ts";
import type { FileWatch } from "./file-watch.ts";
import type { Reader } from "./reader.ts";

/** How long a batch waits for another process to finish its write before it is refused. */
const BUSY_TIMEOUT_MS = 5_000;
/** How soon a batch tries again; short, since the event loop serves reads meanwhile. */
const BUSY_RETRY_MS = 5;

/** How many writes share a transaction at most: a bound on how long reads wait for it. */
const MAX_BATCH = 256;

interface Write {
  readonly table: string;
  /** Whether it counts against `max_pending_writes`. */
  readonly is_limited: boolean;
  readonly work: () => unknown;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/** Work that is done when it returns: a transaction cannot wait for a promise. */
type Synchronous<Result> = Result extends PromiseLike<unknown> ? never : Result;

/** Writes of one table, which error messages name. */
export interface TableWriter {
  /**
   * Runs `work` in a transaction that it shares with others: where it throws, it alone is undone.
   * It may run several times, all but the last in vain, and so must change nothing but the database.
   * @returns what `work` returned, once it is on disk
   * @throws whatever `work` throws
   * @throws {AppError} unavailable if the queue is full, the disk fails, or the files are not in place
   * @throws {AppError} damaged if the work meets a damaged page
   */
  write<Result>(work: () => Synchronous<Result>): Promise<Result>;
  /** As `write`, for writes of our own whose number has a bound: they are accepted by a full queue. */
  writeUnlimited<Result>(work: () => Synchronous<Result>): Promise<Result>;
}

export interface Writer extends TableWriter {
  forTable(table: string): TableWriter;
  /** How many writes wait. */
  pending(): number;
  /** Whether one more would be refused. */
  isFull(): boolean;
  /** Resolves when every write so far has been answered. */
  idle(): Promise<void>;
}

export function createWriter(
  db: Database,
  reader: Reader,
  checkpointer: Checkpointer,
  files: FileWatch,
  { max_pending_writes, onCommit }: Pick<StoreOptions, "max_pending_writes" | "onCommit">,
): Writer {
  const begin = db.prepare("begin immediate");
  const commit = db.prepare("commit");
  const rollback = db.prepare("rollback");
  const savepoint = db.prepare("savepoint one");
  const release = db.prepare("release one");
  const undo = db.prepare("rollback to one");

  const queue: Write[] = [];
  /** Those in the queue that count against `max_pending_writes`. */
  let limited_count = 0;
  let scheduled = false;
  let busy_since_ms: number | null = null;
  const idle_waiters: (() => void)[] = [];

  function isFull(): boolean {
    return limited_count >= max_pending_writes;
  }

  /** Removes writes from the front of the queue. */
  function dequeue(count: number): Write[] {
    const writes = queue.splice(0, count);
    for (const { is_limited } of writes) if (is_limited) limited_count -= 1;
    return writes;
  }

  function schedule(): void {
    if (scheduled) return;
    scheduled = true;
    if (busy_since_ms === null) setImmediate(waitForStragglers);
    else setTimeout(flush, BUSY_RETRY_MS);
  }

  /**
   * Lets those in who come a turn late: of 64 clients who write all the time that is a third, and they would
   * have an fsync to themselves. A lone write waits for nobody.
   */
  function waitForStragglers(): void {
    if (queue.length === 1 || isFull()) flush();
    else setImmediate(flush);
  }

  function finishBatch(callbacks: readonly (() => void)[]): void {
    busy_since_ms = null;
    for (const callback of callbacks) callback();
    const checkpoint = files.isInPlace() ? checkpointer.start() : null;
    if (checkpoint === null) {
      scheduleNext();
    } else {
      // Nobody may begin meanwhile.
      scheduled = true;
      checkpoint.then(scheduleNext, scheduleNext);
    }
  }

  function scheduleNext(): void {
    scheduled = false;
    if (queue.length > 0) schedule();
    else for (const wake of idle_waiters.splice(0)) wake();
  }

  /** Rejects writes of which none is on disk. */
  function rejectAll(writes: readonly Write[], cause: unknown): void {
    finishBatch(writes.map((write) => () => write.reject(rejectionOf(write, cause))));
  }

  /** An error of SQLite that no write caused is one of storage, too: e.g. a transaction that SQLite has ended. */
  function rejectionOf({ table }: Write, cause: unknown): AppError {
    const error = storageError(cause, { verb: "written", table, path: db.filename });
    return error instanceof AppError ? error : unavailableError("written", cause);
  }

  /**
   * Runs a batch without savepoints, which cost as much as a write does, since most never fail.
   * @returns how to answer each; `null` when one has failed, and all of them are undone
   */
  function runWithoutSavepoints(batch: readonly Write[]): (() => void)[] | null {
    try {
      const results = batch.map(({ work }) => work());
      return batch.map(
        ({ resolve }, at) =>
          () =>
            resolve(results[at]),
      );
    } catch {
      // The second attempt tells which of them it was, and why.
      if (db.inTransaction) rollback.run();
      begin.run();
      return null;
    }
  }

  /** What a write came to: how to answer it, and whether storage failed it. */
  interface SavepointResult {
    readonly callback: () => void;
    readonly storage_failed: boolean;
  }

  function runInSavepoint(write: Write): SavepointResult {
    savepoint.run();
    try {
      const result = write.work();
      release.run();
      return { callback: () => write.resolve(result), storage_failed: false };
    } catch (error) {
      // A full disk ends the whole transaction, and the savepoint with it.
      if (!db.inTransaction) throw error;
      undo.run();
      release.run();
      const storage_failed = isStorageError(error);
      const rejection = storage_failed ? rejectionOf(write, error) : error;
      return { callback: () => write.reject(rejection), storage_failed };
    }
  }

  /** @returns false when another process writes and the batch is to try again later */
  function tryBegin(): boolean {
    try {
      files.check();
      begin.run();
      return true;
    } catch (error) {
      busy_since_ms ??= performance.now();
      const may_retry = performance.now() - busy_since_ms < BUSY_TIMEOUT_MS;
      if (isBusy(error) && may_retry) schedule();
      else rejectAll(dequeue(queue.length), error);
      return false;
    }
  }

  function flush(): void {
    scheduled = false;
    reader.reset();
    const started_ms = performance.now();
    if (!tryBegin()) return;
    const batch = dequeue(MAX_BATCH);
    const callbacks = tryCommit(batch);
    if (callbacks === null) return;
    onCommit?.(batch.length, performance.now() - started_ms);
    finishBatch(callbacks);
  }

  /**
   * Commits the writes that succeed. SQLite does not commit a transaction that has met damage, so a write
   * that storage failed is taken out, and the others run again without it.
   * @returns how to answer each write
   */
  function commitAll(batch: readonly Write[]): (() => void)[] {
    const failed: (() => void)[] = [];
    for (let writes = batch; ; ) {
      const all = runWithoutSavepoints(writes);
      const each = all === null ? writes.map(runInSavepoint) : [];
      if (!each.some(({ storage_failed }) => storage_failed)) {
        commit.run();
        // Files that were moved during the commit have taken it with them.
        files.check();
        return [...failed, ...(all ?? each.map(({ callback }) => callback))];
      }
      failed.push(...each.flatMap((one) => (one.storage_failed ? [one.callback] : [])));
      writes = writes.filter((_, at) => !each[at]?.storage_failed);
      rollback.run();
      begin.run();
    }
  }

  /** @returns how to answer each write; `null` when none may be acknowledged, and all have been rejected */
  function tryCommit(batch: readonly Write[]): (() => void)[] | null {
    try {
      return commitAll(batch);
    } catch (error) {
      try {
        if (db.inTransaction) rollback.run();
      } catch {
        // SQLite has ended it meanwhile, or the next `begin` fails and says why.
      }
      rejectAll(batch, error);
      return null;
    }
  }

  function forTable(table: string): TableWriter {
    function enqueue<Result>(is_limited: boolean, work: () => Result): Promise<Result> {
      return new Promise<Result>((resolve, reject) => {
        queue.push({
          table,
          is_limited,
          work,
          resolve: resolve as (result: unknown) => void,
          reject,
        });
        if (is_limited) limited_count += 1;
        schedule();
      });
    }
    return {
      write<Result>(work: () => Synchronous<Result>) {
        if (!isFull()) return enqueue<Result>(true, work);
        return Promise.reject(new AppError("unavailable", "too many writes are waiting"));
      },
      writeUnlimited: <Result>(work: () => Synchronous<Result>) => enqueue<Result>(false, work),
    };
  }

  return {
    ...forTable("all tables"),
    forTable,
    pending: () => queue.length,
    isFull,
    idle() {
      if (queue.length === 0 && !scheduled) return Promise.resolve();
      return new Promise((wake) => idle_waiters.push(wake));
    },
  };
}
