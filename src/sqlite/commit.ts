/**
 * The group commit: writes that arrive in one turn of the event loop, or in the next one, share one
 * transaction and so one fsync; each is answered after that fsync.
 */
import { type Database, SQLiteError } from "bun:sqlite";
import { AppError } from "../error.ts";
import type { StoreOptions } from "../store.ts";
import type { Checkpoints } from "./checkpoint.ts";
import type { Reader } from "./read.ts";

/** How long a batch waits for another process to finish its write before it is refused. */
const BUSY_PATIENCE_MS = 5_000;
/** How soon a batch tries again; short, since the event loop serves reads meanwhile. */
const BUSY_RETRY_MS = 5;

/** How many writes share a transaction at most: a bound on how long reads wait for it. */
const MAX_BATCH = 256;

/** Another process is writing: it will be done soon. */
const BUSY = /^SQLITE_(BUSY|LOCKED)/;
/** What is in the way is not the request: it may be sent again. */
const PASSING = /^SQLITE_(BUSY|LOCKED|FULL|IOERR|READONLY|CANTOPEN|NOMEM)/;

function hasCode(error: unknown, pattern: RegExp): boolean {
  return error instanceof SQLiteError && pattern.test(error.code ?? "");
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

/** Work that is done when it returns: a transaction cannot wait for a promise. */
type Synchronous<Result> = Result extends PromiseLike<unknown> ? never : Result;

export interface Writer {
  /**
   * Runs `work` in a transaction that it shares with others: where it throws, it alone is undone.
   * It may run twice, the first time in vain, and so must change nothing but the database.
   * @returns what `work` returned, once it is on disk
   * @throws whatever `work` throws
   * @throws {AppError} unavailable when the queue is full or the disk refuses
   */
  write<Result>(work: () => Synchronous<Result>): Promise<Result>;
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
  checkpoints: Checkpoints,
  { max_pending_writes, onCommit }: Pick<StoreOptions, "max_pending_writes" | "onCommit">,
): Writer {
  const begin = db.prepare("begin immediate");
  const commit = db.prepare("commit");
  const rollback = db.prepare("rollback");
  const savepoint = db.prepare("savepoint one");
  const release = db.prepare("release one");
  const undo = db.prepare("rollback to one");

  const queue: Write[] = [];
  let scheduled = false;
  let busy_since_ms: number | null = null;
  const waiters: (() => void)[] = [];

  function isFull(): boolean {
    return queue.length >= max_pending_writes;
  }

  function schedule(): void {
    if (scheduled) return;
    scheduled = true;
    if (busy_since_ms === null) setImmediate(gather);
    else setTimeout(flush, BUSY_RETRY_MS);
  }

  /**
   * Lets those in who come a turn late: of 64 clients who write all the time that is a third, and they would
   * have an fsync to themselves. A lone write waits for nobody.
   */
  function gather(): void {
    if (queue.length === 1 || isFull()) flush();
    else setImmediate(flush);
  }

  function settle(answers: readonly (() => void)[]): void {
    busy_since_ms = null;
    for (const answer of answers) answer();
    const checkpoint = checkpoints.start();
    if (checkpoint === null) {
      proceed();
    } else {
      // Nobody may begin meanwhile.
      scheduled = true;
      checkpoint.then(proceed, proceed);
    }
  }

  function proceed(): void {
    scheduled = false;
    if (queue.length > 0) schedule();
    else for (const wake of waiters.splice(0)) wake();
  }

  /** Whatever each of them has come to: none of it is on disk. */
  function refuse(writes: readonly Write[], cause: unknown): void {
    const refusal = unavailable(cause);
    settle(writes.map((write) => () => write.reject(refusal)));
  }

  /**
   * Runs a batch without savepoints, which cost as much as a write does, since most never fail.
   * @returns how to answer each; `null` when one has failed, and all of them are undone
   */
  function performAll(batch: readonly Write[]): (() => void)[] | null {
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

  /** @returns how to answer the write once the transaction is on disk */
  function perform({ work, resolve, reject }: Write): () => void {
    savepoint.run();
    try {
      const result = work();
      release.run();
      return () => resolve(result);
    } catch (error) {
      // A full disk ends the whole transaction, and the savepoint with it.
      if (!db.inTransaction) throw error;
      undo.run();
      release.run();
      return () => reject(hasCode(error, PASSING) ? unavailable(error) : error);
    }
  }

  /** @returns false when another process writes and the batch is to try again later */
  function tryBegin(): boolean {
    try {
      begin.run();
      return true;
    } catch (error) {
      busy_since_ms ??= performance.now();
      const patient = performance.now() - busy_since_ms < BUSY_PATIENCE_MS;
      if (hasCode(error, BUSY) && patient) schedule();
      else refuse(queue.splice(0), error);
      return false;
    }
  }

  function flush(): void {
    scheduled = false;
    reader.end();
    const started_ms = performance.now();
    if (!tryBegin()) return;
    const batch = queue.splice(0, MAX_BATCH);
    const answers = tryCommit(batch);
    if (answers === null) return;
    onCommit?.(batch.length, performance.now() - started_ms);
    settle(answers);
  }

  /** @returns how to answer each write; `null` when none is on disk, and all have been refused */
  function tryCommit(batch: readonly Write[]): (() => void)[] | null {
    try {
      const answers = performAll(batch) ?? batch.map(perform);
      commit.run();
      return answers;
    } catch (error) {
      try {
        if (db.inTransaction) rollback.run();
      } finally {
        refuse(batch, error);
      }
      return null;
    }
  }

  return {
    write<Result>(work: () => Synchronous<Result>) {
      if (isFull()) {
        return Promise.reject(new AppError("unavailable", "too many writes are waiting"));
      }
      return new Promise<Result>((resolve, reject) => {
        queue.push({ work, resolve: resolve as (result: unknown) => void, reject });
        schedule();
      });
    },
    pending: () => queue.length,
    isFull,
    idle() {
      if (queue.length === 0 && !scheduled) return Promise.resolve();
      return new Promise((wake) => waiters.push(wake));
    },
  };
}
