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
import type { Outcome, Settle, Write, WriteBatch } from "./write-batch.ts";

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

/** The writes that wait for a transaction. */
function createWriteQueue() {
  const queue = createRoundRobinQueue<Write>();
  /** The write because of which a batch was rolled back. It gets a transaction of its own. */
  let suspect: Write | null = null;
  /** The other writes of that batch, which run in the next one. */
  let others: Write[] = [];

  const size = () => queue.size() + others.length + (suspect === null ? 0 : 1);

  /** Takes the next write. @returns `null` if there is none */
  function take(): Write | null {
    const alone = suspect;
    suspect = null;
    return alone ?? others.shift() ?? queue.take();
  }

  return {
    size,
    take,
    add: queue.add,
    /** @returns whether the next write must be the only one of its transaction */
    isNextAlone: () => suspect !== null,
    /** Takes back a batch, whose last write has failed. */
    takeBack(writes: readonly Write[]) {
      suspect = writes.at(-1) ?? null;
      others = [...writes.slice(0, -1), ...others];
    },
    takeAll: () => Array.from({ length: size() }, () => take() as Write),
  };
}

/** @param gate `null` acknowledges what is on the disk */
function createAcknowledger(gate: CommitGate | null) {
  let pending = 0;

  async function settleConfirmed(
    confirmation: Promise<void>,
    writes: readonly Write[],
    settles: readonly Settle[],
  ): Promise<void> {
    pending += writes.length;
    try {
      await confirmation;
      for (const settle of settles) settle();
    } catch (error) {
      for (const { reject } of writes) reject(error);
    } finally {
      pending -= writes.length;
    }
  }

  return {
    /** @returns the number of writes that were committed, and wait for the gate */
    pending: () => pending,
    /** Settles writes that are on the disk as soon as they may be acknowledged. */
    settle(writes: readonly Write[], settles: readonly Settle[]): void {
      const confirmation = gate?.confirm() ?? null;
      if (confirmation !== null) void settleConfirmed(confirmation, writes, settles);
      else for (const settle of settles) settle();
    },
  };
}

/** @param gate `null` acknowledges what is on the disk */
export function createWriter(
  batch: WriteBatch,
  reader: Reader,
  checkpointer: Checkpointer,
  onCommit: OnCommit,
  gate: CommitGate | null,
  nowMs = () => performance.now(),
) {
  const queue = createWriteQueue();
  const acknowledger = createAcknowledger(gate);
  let scheduled = false;
  let busySinceMs: number | null = null;

  /** @param taken gets the writes. @returns takes writes out of the queue until the batch ends */
  function takeBatch(taken: Write[], maxWrites: number, begunMs: number): () => Write | null {
    return () => {
      if (taken.length >= maxWrites || nowMs() - begunMs >= MAX_BATCH_MS) return null;
      const write = queue.take();
      if (write !== null) taken.push(write);
      return write;
    };
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

  function scheduleNext(): void {
    scheduled = false;
    if (queue.size() > 0) schedule();
  }

  /** Rejects writes, none of which may be acknowledged. */
  function rejectAll(writes: readonly Write[], cause: unknown): void {
    busySinceMs = null;
    for (const write of writes) write.reject(batch.batchErrorOf(write, cause));
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
      else rejectAll(queue.takeAll(), error);
      return false;
    }
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
    const isAlone = queue.isNextAlone();
    const writes: Write[] = [];
    let outcome: Outcome;
    try {
      // From now on: a slow `begin` must not leave the batch empty, again and again.
      outcome = batch.run(takeBatch(writes, isAlone ? 1 : MAX_BATCH, nowMs()));
    } catch (error) {
      rejectAll(writes, error);
      return;
    }
    if ("settles" in outcome) {
      onCommit(writes.length, nowMs() - startedMs);
      acknowledger.settle(writes, outcome.settles);
      startCheckpoint();
      return;
    }
    if (isAlone) for (const write of writes) write.reject(batch.errorOf(write, outcome.error));
    else queue.takeBack(writes);
    scheduleNext();
  }

  return {
    /**
     * Runs `work` in a transaction that it shares with other writes. If `work` throws, it does not affect the others. It may
     * run several times, and only the last run is committed. It must have no effect outside the database, and throw an
     * AppError only before its first change. Callers bound the number of queued writes, as `http/limits/memory.ts` does.
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
    pending: () => queue.size() + acknowledger.pending(),
    /** Starts a checkpoint if one is due. Each batch of writes ends with this too. */
    checkpoint() {
      if (scheduled) return;
      reader.reset();
      startCheckpoint();
    },
    /** Waits until no write is queued, runs or waits for the gate. */
    async idle(): Promise<void> {
      while (scheduled || queue.size() + acknowledger.pending() > 0) await Bun.sleep(1);
    },
  };
}
