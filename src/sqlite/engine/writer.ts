/**
 * Group commit. Writes that arrive in one turn of the event loop, or in the next one, share one transaction and
 * therefore one fsync. Each write is settled after that fsync. Authors are served round robin, so that slow writes of
 * one hardly delay those of another.
 */

import { createRoundRobinQueue } from "../../base/round-robin-queue.ts";
import type { Author } from "../../domain/record.ts";
import type { OnCommit } from "../../domain/store.ts";
import type { Checkpointer } from "../file/checkpoint.ts";
import { isBusy } from "../file/errors.ts";
import type { Reader } from "./reader.ts";
import type { Settle, Write, WriteAt, WriteBatch } from "./write-batch.ts";

/** A batch is rejected after waiting this long for another process to finish its write. */
const BUSY_TIMEOUT_MS = 5_000;
/** Delay between two attempts. The event loop serves reads in the meantime. */
const BUSY_RETRY_MS = 5;

/** Maximum number of writes per transaction. */
const MAX_BATCH = 256;
/** After this time, no further write joins the transaction. It bounds how long reads wait. */
const MAX_BATCH_MS = 10;

/** Excludes promises from the result of `work`, because a transaction cannot wait for one. */
type Synchronous<Result> = Result extends PromiseLike<unknown> ? never : Result;

/** Decides when a commit is acknowledged. */
export interface CommitGate {
  /** @throws {AppError} unavailable if no write may begin */
  requireOpen(): void;
  /**
   * Call it after each commit.
   * @returns resolves when the writes may be acknowledged, and rejects with the error for them; `null` if they may at
   * once
   */
  confirm(): Promise<void> | null;
}

export type Writer = ReturnType<typeof createWriter>;

/** @param gate `null` acknowledges what is on the disk */
export function createWriter(
  batch: WriteBatch,
  reader: Reader,
  checkpointer: Checkpointer,
  onCommit: OnCommit,
  gate: CommitGate | null,
  nowMs = () => performance.now(),
) {
  const queue = createRoundRobinQueue<Write>();
  /** Writes that were committed, and wait for the gate. */
  let unconfirmedCount = 0;
  let scheduled = false;
  let busySinceMs: number | null = null;
  const idleWaiters: (() => void)[] = [];

  function dequeueAll(): Write[] {
    const writes: Write[] = [];
    for (let write = queue.take(); write !== null; write = queue.take()) writes.push(write);
    return writes;
  }

  /** Takes writes out of the queue until the batch ends. @param taken gets them */
  function takeBatch(taken: Write[]): WriteAt {
    const startedMs = nowMs();

    function takeNext(): Write | null {
      if (taken.length >= MAX_BATCH || nowMs() - startedMs >= MAX_BATCH_MS) return null;
      const write = queue.take();
      if (write !== null) taken.push(write);
      return write;
    }

    return (at) => taken[at] ?? takeNext();
  }

  function schedule(): void {
    if (scheduled) return;
    scheduled = true;
    if (busySinceMs === null) setImmediate(waitForStragglers);
    else setTimeout(flush, BUSY_RETRY_MS);
  }

  /**
   * Waits one more turn for stragglers. Of 64 busy writers, a third arrive one turn late and would need an fsync of
   * their own. A single write is committed immediately, and so is a full batch.
   */
  function waitForStragglers(): void {
    if (queue.size() === 1 || queue.size() >= MAX_BATCH) flush();
    else setImmediate(flush);
  }

  function isIdle(): boolean {
    return queue.size() === 0 && !scheduled && unconfirmedCount === 0;
  }

  function wakeIfIdle(): void {
    if (isIdle()) for (const wake of idleWaiters.splice(0)) wake();
  }

  function scheduleNext(): void {
    scheduled = false;
    if (queue.size() > 0) schedule();
    else wakeIfIdle();
  }

  /** Rejects writes, none of which may be acknowledged. */
  function rejectAll(writes: readonly Write[], cause: unknown): void {
    busySinceMs = null;
    for (const write of writes) write.reject(batch.rejectionOf(write, cause));
    scheduleNext();
  }

  /** @returns false if another process is writing and the batch will be retried, or if the batch was rejected */
  function tryBegin(): boolean {
    try {
      gate?.requireOpen();
      batch.begin();
      busySinceMs = null;
      return true;
    } catch (error) {
      busySinceMs ??= nowMs();
      const mayRetry = nowMs() - busySinceMs < BUSY_TIMEOUT_MS;
      if (isBusy(error) && mayRetry) schedule();
      else rejectAll(dequeueAll(), error);
      return false;
    }
  }

  /** Settles writes that are on the disk as soon as they may be acknowledged. */
  function acknowledge(writes: readonly Write[], settles: readonly Settle[]): void {
    const confirmation = gate?.confirm() ?? null;
    if (confirmation === null) {
      for (const settle of settles) settle();
      return;
    }
    unconfirmedCount += writes.length;
    void confirmation
      .finally(() => {
        unconfirmedCount -= writes.length;
      })
      .then(
        () => {
          for (const settle of settles) settle();
        },
        (error) => {
          for (const { reject } of writes) reject(error);
        },
      )
      .then(wakeIfIdle);
  }

  /** Starts a checkpoint if one is due. No write begins during a checkpoint. */
  function startCheckpoint(): void {
    const checkpoint = checkpointer.start();
    scheduled = checkpoint !== null;
    if (checkpoint === null) scheduleNext();
    else checkpoint.then(scheduleNext, scheduleNext);
  }

  function flush(): void {
    scheduled = false;
    reader.reset();
    const startedMs = nowMs();
    if (!tryBegin()) return;
    const writes: Write[] = [];
    let settles: readonly Settle[];
    try {
      settles = batch.commit(takeBatch(writes));
    } catch (error) {
      rejectAll(writes, error);
      return;
    }
    onCommit(writes.length, nowMs() - startedMs);
    acknowledge(writes, settles);
    startCheckpoint();
  }

  return {
    /**
     * Runs `work` in a transaction that it shares with other writes. If `work` throws, only its own changes are rolled
     * back. It may run several times, and only the last run is committed. It must have no effect outside the database.
     * Callers bound the number of queued writes, as `http/limits/memory.ts` does.
     * @param table the table that is written, for error messages
     * @param author who sends it; `null`, the default, for the process itself. Writes of one author keep
     * their order
     * @returns what `work` returned; resolves when the transaction is on disk
     * @throws whatever `work` throws
     * @throws {AppError} unavailable if the disk fails, or the files were moved
     * @throws {AppError} damaged if `work` reads a damaged page
     */
    write<Result>(
      table: string,
      work: () => Synchronous<Result>,
      author: Author = null,
    ): Promise<Result> {
      return new Promise<Result>((resolve, reject) => {
        queue.add(author, {
          table,
          work,
          resolve: resolve as (result: unknown) => void,
          reject,
        });
        schedule();
      });
    },
    /** @returns the number of writes that are queued or not acknowledged yet */
    pending: () => queue.size() + unconfirmedCount,
    /** Starts a checkpoint if one is due. Each batch of writes ends with this too. */
    checkpoint() {
      if (scheduled) return;
      reader.reset();
      startCheckpoint();
    },
    /** @returns resolves when all writes so far are settled */
    idle(): Promise<void> {
      if (isIdle()) return Promise.resolve();
      return new Promise((wake) => idleWaiters.push(wake));
    },
  };
}
