/**
 * Group commit. Writes that arrive in one turn of the event loop, or in the next one, share one transaction and one fsync,
 * after which each is settled. Authors are served round robin, so that slow writes of one hardly delay those of another.
 */
import { createRoundRobinQueue } from "../../base/round-robin-queue.ts";
import type { Author } from "../../domain/record.ts";
import type { OnCommit } from "../../domain/store.ts";
import type { Checkpointer } from "../file/checkpoint.ts";
import { isBusy } from "../file/errors.ts";
import type { Reader } from "./reader.ts";
import type { Write, WriteBatch } from "./write-batch.ts";

/** A batch is rejected after waiting this long for another process to finish its write. */
const BUSY_TIMEOUT_MS = 5_000;
/** Delay between two attempts. The event loop serves reads in the meantime. */
const BUSY_RETRY_MS = 5;

const MAX_BATCH = 256;
/** After this time, no further write joins the transaction. It bounds how long reads wait. */
const MAX_BATCH_MS = 10;

/** Excludes promises from the result of `work`, because a transaction cannot wait for one. */
type Synchronous<Result> = Result extends PromiseLike<unknown> ? never : Result;

interface CommitGate {
  /** Call it before each attempt to write. `confirm` or `failed` ends it. @throws {AppError} unavailable if none may begin */
  begin(): void;
  /** Call it after each commit. @returns resolves when the writes may be acknowledged; `null` if they may at once */
  confirm(): Promise<void> | null;
  /** Call it when nothing was committed. @param isOfDisk whether the disk was the reason */
  failed(isOfDisk: boolean): void;
}

export type Writer = ReturnType<typeof createWriter>;

export interface WriterParts {
  readonly batch: WriteBatch;
  readonly reader: Reader;
  readonly checkpointer: Checkpointer;
  readonly onCommit: OnCommit;
  /** `null` acknowledges what is on the disk. */
  readonly gate: CommitGate | null;
  readonly nowMs?: () => number;
}

type State = ReturnType<typeof createState>;

function createState({ nowMs = () => performance.now(), ...parts }: WriterParts) {
  return {
    ...parts,
    nowMs,
    queue: createRoundRobinQueue<Write>(),
    /** Writes of a batch that was rolled back. They run in the next one. */
    rolledBack: [] as Write[],
    unconfirmed: 0,
    /** Whether a batch is scheduled, or a checkpoint runs. */
    scheduled: false,
    busySinceMs: null as number | null,
  };
}

function queued({ queue, rolledBack }: State): number {
  return queue.size() + rolledBack.length;
}

function take({ queue, rolledBack }: State): Write | null {
  return rolledBack.shift() ?? queue.take();
}

function takeBatch(state: State, taken: Write[]): () => Write | null {
  // From now on: a slow `begin` must not leave the batch empty, again and again.
  const begunMs = state.nowMs();
  return () => {
    if (taken.length >= MAX_BATCH || state.nowMs() - begunMs >= MAX_BATCH_MS) return null;
    const write = take(state);
    if (write !== null) taken.push(write);
    return write;
  };
}

function schedule(state: State): void {
  if (state.scheduled) return;
  state.scheduled = true;
  if (state.busySinceMs === null) setImmediate(waitForStragglers, state);
  else setTimeout(flush, BUSY_RETRY_MS, state);
}

/** Of 64 busy writers, a third arrive one turn late: they are waited for. A single write and a full batch are not delayed. */
function waitForStragglers(state: State): void {
  if (queued(state) === 1 || queued(state) >= MAX_BATCH) flush(state);
  else setImmediate(flush, state);
}

function scheduleNext(state: State): void {
  state.scheduled = false;
  if (queued(state) > 0) schedule(state);
}

function rejectAll(state: State, writes: readonly Write[], cause: unknown): void {
  state.busySinceMs = null;
  for (const write of writes) write.reject(state.batch.batchErrorOf(write, cause));
  scheduleNext(state);
}

/** @returns false if another process is writing and the batch will be retried, or if the batch was rejected */
function tryBegin(state: State): boolean {
  try {
    state.gate?.begin();
    state.batch.begin();
    state.busySinceMs = null;
    return true;
  } catch (error) {
    state.gate?.failed(state.batch.isOfDisk(error));
    state.busySinceMs ??= state.nowMs();
    const mayRetry = state.nowMs() - state.busySinceMs < BUSY_TIMEOUT_MS;
    if (isBusy(error) && mayRetry) schedule(state);
    else {
      const writes = Array.from({ length: queued(state) }, () => take(state) as Write);
      rejectAll(state, writes, error);
    }
    return false;
  }
}

async function settleConfirmed(
  state: State,
  confirmation: Promise<void>,
  writes: readonly Write[],
  settles: readonly (() => void)[],
): Promise<void> {
  state.unconfirmed += writes.length;
  try {
    await confirmation;
    for (const settle of settles) settle();
  } catch (error) {
    for (const { reject } of writes) reject(error);
  } finally {
    state.unconfirmed -= writes.length;
  }
}

/** Starts a checkpoint if one is due. No write begins during a checkpoint. */
function startCheckpoint(state: State): void {
  const checkpoint = state.checkpointer.start();
  state.scheduled = checkpoint !== null;
  const next = () => scheduleNext(state);
  if (checkpoint === null) next();
  else checkpoint.then(next, next);
}

function flush(state: State): void {
  state.scheduled = false;
  state.reader.reset();
  const startedMs = state.nowMs();
  if (!tryBegin(state)) return;
  const writes: Write[] = [];
  let settles: ReturnType<WriteBatch["run"]>;
  try {
    settles = state.batch.run(takeBatch(state, writes));
  } catch (error) {
    state.gate?.failed(state.batch.isOfDisk(error));
    rejectAll(state, writes, error);
    return;
  }
  if ("cause" in settles) {
    state.gate?.failed(state.batch.isOfDisk(settles.cause));
    state.rolledBack = [...writes.slice(0, -1), ...state.rolledBack];
    scheduleNext(state);
    return;
  }
  state.onCommit(writes.length, state.nowMs() - startedMs);
  const confirmation = state.gate?.confirm() ?? null;
  if (confirmation !== null) void settleConfirmed(state, confirmation, writes, settles);
  else for (const settle of settles) settle();
  startCheckpoint(state);
}

export function createWriter(parts: WriterParts) {
  const state = createState(parts);
  const pending = () => queued(state) + state.unconfirmed;

  return {
    /**
     * Runs `work` in a transaction that it shares with other writes. If `work` throws, it does not affect the others. It may
     * run several times, and only the last run is committed. It must have no effect outside the database, and throw an
     * AppError only before its first change. Callers bound the number of queued writes, as `http/limits/memory.ts` does.
     * @param author `null` for the process itself. Writes of one author keep their order
     * @returns what `work` returned; resolves when the transaction is on disk
     * @throws what `work` throws; {AppError} unavailable if the disk fails or the files were moved; damaged if a page is damaged
     */
    write<Result>(table: string, work: () => Synchronous<Result>, author: Author = null) {
      return new Promise<Result>((resolve, reject) => {
        state.queue.add(author, { table, work, resolve: resolve as Write["resolve"], reject });
        schedule(state);
      });
    },
    pending,
    checkpoint() {
      if (state.scheduled) return;
      parts.reader.reset();
      startCheckpoint(state);
    },
    async idle(): Promise<void> {
      while (state.scheduled || pending() > 0) await Bun.sleep(1);
    },
  };
}
