/**
 * Batches: requests that arrive in one turn of the event loop share one statement. Requests that arrive while it
 * runs wait for it and share the next one, because a transaction costs many times as much as a row.
 */
import { AppError } from "../error.ts";
import type { Maybe } from "../maybe.ts";
import { createTurnQueue } from "../turn-queue.ts";
import { type BatchTiming, createBatchStarter } from "./batch-start.ts";
import { QUEUE_TIMEOUT_MS } from "./limiter.ts";

/**
 * Runs items together. The batch ends when the promise settles.
 * @returns the result of each item, in order; a promise for an item that takes longer than the batch
 */
export type RunBatch<Item, Result> = (items: readonly Item[]) => Promise<readonly Maybe<Result>[]>;

export interface BatchOptions<Item, Result> extends Partial<BatchTiming> {
  readonly run: RunBatch<Item, Result>;
  /** Maximum number of items in a batch. The next batch starts as soon as this many items wait. */
  readonly maxItems: number;
  /** Maximum size of a batch. A larger item has a batch to itself. */
  readonly maxSize?: number;
  /** The default is 0. */
  readonly sizeOf?: (item: Item) => number;
  /** Two items with a common key do not run at the same time. The default is no keys. */
  readonly conflictKeysOf?: (item: Item) => readonly string[];
  /**
   * Each client has an item in a batch before another one has two, so that nobody waits for all items of somebody else.
   * By default, items are taken in the order in which they came.
   */
  readonly clientOf?: (item: Item) => string | null;
  readonly queueTimeoutMs?: number;
}

interface Waiting<Item, Result> {
  readonly item: Item;
  readonly conflictKeys: readonly string[];
  readonly sinceMs: number;
  readonly resolve: (result: Maybe<Result>) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * @returns a function that runs an item in a batch. It rejects with the error of the batch, or {AppError} unavailable
 * if the item waits for too long
 */
export function createBatchQueue<Item, Result>({
  run,
  maxItems,
  maxSize = Number.POSITIVE_INFINITY,
  sizeOf = () => 0,
  conflictKeysOf = () => [],
  clientOf,
  queueTimeoutMs = QUEUE_TIMEOUT_MS,
  ...timing
}: BatchOptions<Item, Result>): (item: Item) => Promise<Result> {
  let queue: Waiting<Item, Result>[] = [];
  /** Keys of the items that are running. */
  const busyKeys = new Set<string>();

  function rejectExpired(): void {
    const expiredMs = performance.now() - queueTimeoutMs;
    while (queue[0] !== undefined && queue[0].sinceMs <= expiredMs) {
      queue.shift()?.reject(new AppError("unavailable", "the database is busy"));
    }
  }

  function inTurns(items: readonly Waiting<Item, Result>[]): readonly Waiting<Item, Result>[] {
    if (clientOf === undefined || items.length <= maxItems) return items;
    const turns = createTurnQueue<Waiting<Item, Result>>();
    for (const waiting of items) turns.add(clientOf(waiting.item), waiting);
    const ordered: Waiting<Item, Result>[] = [];
    for (let next = turns.take(); next !== null; next = turns.take()) ordered.push(next);
    return ordered;
  }

  /** Moves the items of the next batch out of the queue. Those that conflict with a running item stay. */
  function takeBatch(): Waiting<Item, Result>[] {
    const batch = new Set<Waiting<Item, Result>>();
    let size = 0;
    for (const waiting of inTurns(queue)) {
      if (batch.size === maxItems) break;
      const { item, conflictKeys } = waiting;
      if (conflictKeys.some((key) => busyKeys.has(key))) continue;
      const newSize = size + sizeOf(item);
      if (batch.size > 0 && newSize > maxSize) continue;
      size = newSize;
      for (const key of conflictKeys) busyKeys.add(key);
      batch.add(waiting);
    }
    queue = queue.filter((waiting) => !batch.has(waiting));
    return [...batch];
  }

  function release({ conflictKeys }: Waiting<Item, Result>): void {
    for (const key of conflictKeys) busyKeys.delete(key);
  }

  function settle(waiting: Waiting<Item, Result>, result: Maybe<Result>): void {
    waiting.resolve(result);
    const end = () => {
      release(waiting);
      startSoon();
    };
    if (result instanceof Promise) result.then(end, end);
    else end();
  }

  async function runBatch(batch: readonly Waiting<Item, Result>[]): Promise<void> {
    try {
      const results = await run(batch.map(({ item }) => item));
      // Before the first is settled, so that a missing result rejects the whole batch.
      const pairs = batch.map((waiting, at) => [waiting, itemAt(results, at)] as const);
      for (const [waiting, result] of pairs) settle(waiting, result);
    } catch (error) {
      for (const waiting of batch) {
        waiting.reject(error);
        release(waiting);
      }
    }
  }

  const startSoon = createBatchStarter({
    ...timing,
    maxItems,
    countWaiting: () => queue.length,
    rejectExpired,
    startBatch() {
      const batch = takeBatch();
      return batch.length === 0 ? null : runBatch(batch);
    },
  });

  return (item) =>
    new Promise<Result>((resolve, reject) => {
      const conflictKeys = conflictKeysOf(item);
      queue.push({ item, conflictKeys, sinceMs: performance.now(), resolve, reject });
      startSoon();
    });
}

/** Runs work. Work with a common key runs one after the other. */
export type RunInOrder = <Result>(key: string, work: () => Promise<Result>) => Promise<Result>;

interface KeyedWork {
  readonly key: string;
  readonly work: () => Promise<unknown>;
}

/** @param maxRunning maximum number of pieces of work that run at the same time */
export function createOrderedQueue(maxRunning: number): RunInOrder {
  const enqueue = createBatchQueue<KeyedWork, unknown>({
    run: async ([item]) => [await item?.work()],
    maxItems: 1,
    maxBatches: maxRunning,
    conflictKeysOf: ({ key }) => [key],
  });
  return <Result>(key: string, work: () => Promise<Result>) =>
    enqueue({ key, work }) as Promise<Result>;
}

/**
 * Wraps `run`: after an error that one item may have caused, runs each item alone.
 * @param run reads items, so that it can run again
 * @param mayBeCausedByOneItem whether one item may have caused the error
 */
export function separateOnError<Item, Result>(
  run: RunBatch<Item, Result>,
  mayBeCausedByOneItem: (error: unknown) => boolean,
): RunBatch<Item, Result> {
  return async (items) => {
    try {
      return await run(items);
    } catch (error) {
      if (items.length === 1 || !mayBeCausedByOneItem(error)) throw error;
      return items.map(async (item) => itemAt(await run([item]), 0));
    }
  };
}

/**
 * @returns the item at an index, which may be `undefined` itself
 * @throws if there is none
 */
export function itemAt<Item>(items: readonly (Item | undefined)[], at: number): Item {
  if (!Object.hasOwn(items, at)) throw new Error(`the database returned no result ${at}`);
  return items[at] as Item;
}

/** @returns the rows in the order of their `position`, which starts at 1; positions without a row stay empty */
export function byPosition<Row extends { readonly position: number }>(
  rows: readonly Row[],
): (Row | undefined)[] {
  const ordered: (Row | undefined)[] = [];
  for (const row of rows) ordered[row.position - 1] = row;
  return ordered;
}
