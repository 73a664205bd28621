/**
 * The group commit: writes that arrive in one turn of the event loop share one transaction and so
 * one fsync; each is answered after that fsync.
 */
import { type Database, SQLiteError } from "bun:sqlite";
import { AppError } from "../error.ts";

/** How long a batch waits for another process to finish its write before it is refused. */
const BUSY_PATIENCE_MS = 5_000;
/** How soon a batch tries again; short, since the event loop serves reads meanwhile. */
const BUSY_RETRY_MS = 5;

/** The disk or another process is in the way (not the request): refused, to be tried again. */
const PASSING = /^SQLITE_(BUSY|LOCKED|FULL|IOERR|READONLY|CANTOPEN|NOMEM)/;

function isPassing(error: unknown): boolean {
  return error instanceof SQLiteError && PASSING.test(error.code ?? "");
}

function unavailable(cause: unknown): AppError {
  const error = new AppError("unavailable", "the database cannot be written at the moment");
  error.cause = cause;
  return error;
}

interface Write {
  readonly work: () => unknown;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
}

export interface Writer {
  /**
   * Runs `work`, which must be synchronous, in a transaction of its own or in a savepoint of a
   * shared one: where it throws, it alone is undone.
   * @returns what `work` returned, once it is on disk
   * @throws whatever `work` throws
   * @throws {AppError} unavailable when the queue is full or the disk refuses
   */
  write<Result>(work: () => Result): Promise<Result>;
  /** Resolves when every write so far has been answered. */
  idle(): Promise<void>;
}

export function createWriter(db: Database, max_pending: number): Writer {
  const begin = db.prepare("begin immediate");
  const commit = db.prepare("commit");
  const rollback = db.prepare("rollback");
  const savepoint = db.prepare("savepoint one");
  const release = db.prepare("release one");
  const undo = db.prepare("rollback to one");

  let queue: Write[] = [];
  let scheduled = false;
  let busy_since_ms: number | null = null;
  const waiters: (() => void)[] = [];

  function schedule(): void {
    if (scheduled) return;
    scheduled = true;
    if (busy_since_ms === null) setImmediate(flush);
    else setTimeout(flush, BUSY_RETRY_MS);
  }

  /** @returns how to answer the write once the transaction is on disk, or has failed with `cause` */
  function perform({ work, resolve, reject }: Write): (cause: unknown) => void {
    savepoint.run();
    try {
      const result = work();
      release.run();
      return (cause) => (cause === null ? resolve(result) : reject(unavailable(cause)));
    } catch (error) {
      // A full disk ends the whole transaction, and the savepoint with it.
      if (!db.inTransaction) throw error;
      undo.run();
      release.run();
      const refusal = isPassing(error) ? unavailable(error) : error;
      return () => reject(refusal);
    }
  }

  function flush(): void {
    scheduled = false;
    try {
      begin.run();
    } catch (error) {
      busy_since_ms ??= performance.now();
      if (isPassing(error) && performance.now() - busy_since_ms < BUSY_PATIENCE_MS) {
        schedule();
        return;
      }
      settle(
        queue.map(
          ({ reject }) =>
            (cause) =>
              reject(unavailable(cause)),
        ),
        error,
      );
      return;
    }
    const answers: ((cause: unknown) => void)[] = [];
    try {
      for (const write of queue) answers.push(perform(write));
      commit.run();
      settle(answers, null);
    } catch (error) {
      if (db.inTransaction) rollback.run();
      settle(
        queue.map(
          ({ reject }) =>
            (cause) =>
              reject(unavailable(cause)),
        ),
        error,
      );
    }
  }

  function settle(answers: readonly ((cause: unknown) => void)[], cause: unknown): void {
    queue = [];
    busy_since_ms = null;
    for (const answer of answers) answer(cause);
    for (const wake of waiters.splice(0)) wake();
  }

  return {
    write<Result>(work: () => Result) {
      if (queue.length >= max_pending) {
        return Promise.reject(new AppError("unavailable", "too many writes are waiting"));
      }
      return new Promise<Result>((resolve, reject) => {
        queue.push({ work, resolve: resolve as (result: unknown) => void, reject });
        schedule();
      });
    },
    idle() {
      if (queue.length === 0) return Promise.resolve();
      return new Promise((wake) => waiters.push(wake));
    },
  };
}
