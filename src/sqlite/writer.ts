/**
 * Group commit. Writes that arrive in one turn of the event loop, or in the next one, share one transaction and
 * therefore one fsync. Each write is settled after that fsync.
 */
import type { Database } from "bun:sqlite";
import { AppError } from "../error.ts";
import type { StoreOptions } from "../store.ts";
import type { Checkpointer } from "./checkpoint.ts";
import { isBusy, isStorageError, storageError, unavailableError } from "./errors.ts";
import type { FileWatch } from "./file-watch.ts";
import type { Reader } from "./reader.ts";

/** A batch is rejected after waiting this long for another process to finish its write. */
const BUSY_TIMEOUT_MS = 5_000;
/** Delay between two attempts. The event loop serves reads in the meantime. */
const BUSY_RETRY_MS = 5;

/** Maximum number of writes per transaction. It bounds how long reads wait. */
const MAX_BATCH = 256;

interface Write {
  readonly table: string;
  /** Whether the write counts towards `max_pending_writes`. */
  readonly is_limited: boolean;
  readonly work: () => unknown;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/** Outcome of running the writes of a batch once: how to settle each write, or the write that failed. */
type Attempt =
  | { readonly callbacks: readonly (() => void)[] }
  | { readonly failed: Write; readonly is_storage: boolean };

/** Excludes promises from the result of `work`, because a transaction cannot wait for one. */
type Synchronous<Result> = Result extends PromiseLike<unknown> ? never : Result;

/** Writes of one table, which error messages name. */
export interface TableWriter {
  /**
   * Runs `work` in a transaction that it shares with other writes. If `work` throws, only its own changes are rolled
   * back. It may run several times, and only the last run is committed. It must have no effect outside the database.
   * @returns what `work` returned; resolves when the transaction is on disk
   * @throws whatever `work` throws
   * @throws {AppError} unavailable if the queue is full, the disk fails, or the files were moved
   * @throws {AppError} damaged if `work` reads a damaged page
   */
  write<Result>(work: () => Synchronous<Result>): Promise<Result>;
  /** Like `write`, but accepts the write even if the queue is full. For internal writes of a bounded number. */
  writeUnlimited<Result>(work: () => Synchronous<Result>): Promise<Result>;
}

export interface Writer {
  forTable(table: string): TableWriter;
  /** Number of queued writes. */
  pending(): number;
  /** Whether the next write would be rejected. */
  isFull(): boolean;
  /** Resolves when all writes so far are settled. */
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
  /** Queued writes that count towards `max_pending_writes`. */
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
   * Waits one more turn for stragglers. Of 64 busy writers, a third arrive one turn late and would need an fsync of
   * their own. A single write is committed immediately.
   */
  function waitForStragglers(): void {
    if (queue.length === 1 || isFull()) flush();
    else setImmediate(flush);
  }

  function settle(callbacks: readonly (() => void)[]): void {
    busy_since_ms = null;
    for (const callback of callbacks) callback();
  }

  /** No write begins during a checkpoint. */
  function continueAfter(checkpoint: Promise<void> | null): void {
    if (checkpoint === null) {
      scheduleNext();
    } else {
      scheduled = true;
      checkpoint.then(scheduleNext, scheduleNext);
    }
  }

  function scheduleNext(): void {
    scheduled = false;
    if (queue.length > 0) schedule();
    else for (const wake of idle_waiters.splice(0)) wake();
  }

  /** Rejects writes, none of which may be acknowledged. */
  function rejectAll(writes: readonly Write[], cause: unknown): void {
    settle(writes.map((write) => () => write.reject(rejectionOf(write, cause))));
    continueAfter(null);
  }

  /** Other errors here, e.g. because SQLite has ended the transaction, are also reported as unavailable. */
  function rejectionOf({ table }: Write, cause: unknown): AppError {
    const { isReadable } = files;
    const error = storageError(cause, { verb: "written", table, isReadable });
    return error instanceof AppError ? error : unavailableError("written", cause);
  }

  function restart(): void {
    if (db.inTransaction) rollback.run();
    begin.run();
  }

  /**
   * Runs writes without savepoints. Almost all writes succeed, and a savepoint costs as much as a write.
   * @returns how to settle each write, or the write that failed
   */
  function runWithoutSavepoints(writes: readonly Write[]): Attempt {
    const callbacks: (() => void)[] = [];
    for (const write of writes) {
      try {
        const result = write.work();
        callbacks.push(() => write.resolve(result));
      } catch (error) {
        return { failed: write, is_storage: isStorageError(error) };
      }
    }
    return { callbacks };
  }

  /** Runs each write in a savepoint. @returns how to settle each write, or the write that storage made fail */
  function runInSavepoints(writes: readonly Write[]): Attempt {
    const callbacks: (() => void)[] = [];
    for (const write of writes) {
      savepoint.run();
      try {
        const result = write.work();
        release.run();
        callbacks.push(() => write.resolve(result));
      } catch (error) {
        // A full disk ends the whole transaction, and the savepoint with it.
        if (!db.inTransaction) throw error;
        if (isStorageError(error)) return { failed: write, is_storage: true };
        undo.run();
        release.run();
        callbacks.push(() => write.reject(error));
      }
    }
    return { callbacks };
  }

  /** Runs a write in a separate transaction. @returns how to settle it */
  function runAlone(write: Write): () => void {
    try {
      begin.run();
      const result = write.work();
      commit.run();
      files.check();
      return () => write.resolve(result);
    } catch (error) {
      rollBackQuietly();
      const rejection = isStorageError(error) ? rejectionOf(write, error) : error;
      return () => write.reject(rejection);
    }
  }

  function rollBackQuietly(): void {
    try {
      if (db.inTransaction) rollback.run();
    } catch {
      // SQLite has ended the transaction itself. If not, the next `begin` fails and says why.
    }
  }

  /** @returns false if another process is writing and the batch will be retried, or if the batch was rejected */
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
    settle(callbacks);
    continueAfter(checkpointer.start());
  }

  /**
   * Commits the writes that succeed. After SQLite has read a damaged page, it rejects all further writes of the
   * transaction, and the commit. Therefore the others run again without the write that failed. Finally, that write
   * gets a separate transaction, because SQLite reports a transient read error as damage.
   * @returns how to settle each write
   */
  function commitAll(batch: readonly Write[]): (() => void)[] {
    const suspects: Write[] = [];
    for (let writes = batch; ; ) {
      let attempt = runWithoutSavepoints(writes);
      if ("failed" in attempt && !attempt.is_storage) {
        restart();
        attempt = runInSavepoints(writes);
      }
      if ("callbacks" in attempt) {
        commit.run();
        // If the files were moved during the commit, it went to the moved files.
        files.check();
        return [...attempt.callbacks, ...suspects.map(runAlone)];
      }
      const { failed } = attempt;
      suspects.push(failed);
      writes = writes.filter((write) => write !== failed);
      restart();
    }
  }

  /** @returns how to settle each write; `null` if the commit failed and all writes have been rejected */
  function tryCommit(batch: readonly Write[]): (() => void)[] | null {
    try {
      return commitAll(batch);
    } catch (error) {
      rollBackQuietly();
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
    forTable,
    pending: () => queue.length,
    isFull,
    idle() {
      if (queue.length === 0 && !scheduled) return Promise.resolve();
      return new Promise((wake) => idle_waiters.push(wake));
    },
  };
}
