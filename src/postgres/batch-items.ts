/** The items that wait for a batch, and which of them the next one has. */
import { AppError } from "../error.ts";
import type { Maybe } from "../maybe.ts";
import { createRoundRobinQueue } from "../round-robin-queue.ts";
import { QUEUE_TIMEOUT_MS } from "./limiter.ts";

export interface BatchItemsOptions<Item> {
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

export interface BatchItem<Item, Result> {
  readonly item: Item;
  readonly size: number;
  readonly conflictKeys: readonly string[];
  readonly sinceMs: number;
  readonly resolve: (result: Maybe<Result>) => void;
  readonly reject: (error: unknown) => void;
}

export function createBatchItems<Item, Result>({
  maxItems,
  maxSize = Number.POSITIVE_INFINITY,
  sizeOf = () => 0,
  conflictKeysOf = () => [],
  clientOf,
  queueTimeoutMs = QUEUE_TIMEOUT_MS,
}: BatchItemsOptions<Item>) {
  let queue: BatchItem<Item, Result>[] = [];
  /** Keys of the items that are running. */
  const busyKeys = new Set<string>();

  /** @returns whether the next batch can have all items */
  function fitTogether(): boolean {
    if (queue.length > maxItems) return false;
    return queue.reduce((sum, { size }) => sum + size, 0) <= maxSize;
  }

  function inRoundRobin(): readonly BatchItem<Item, Result>[] {
    if (clientOf === undefined || fitTogether()) return queue;
    const roundRobin = createRoundRobinQueue<BatchItem<Item, Result>>();
    for (const waiting of queue) roundRobin.add(clientOf(waiting.item), waiting);
    const ordered: BatchItem<Item, Result>[] = [];
    for (let next = roundRobin.take(); next !== null; next = roundRobin.take()) ordered.push(next);
    return ordered;
  }

  return {
    /** @returns the number of items that wait */
    count: () => queue.length,
    add: (item: Item): Promise<Result> =>
      new Promise((resolve, reject) => {
        const conflictKeys = conflictKeysOf(item);
        const sinceMs = performance.now();
        queue.push({ item, size: sizeOf(item), conflictKeys, sinceMs, resolve, reject });
      }),
    /** Rejects items that have waited for too long. */
    rejectExpired() {
      const expiredMs = performance.now() - queueTimeoutMs;
      while (queue[0] !== undefined && queue[0].sinceMs <= expiredMs) {
        queue.shift()?.reject(new AppError("unavailable", "the database is busy"));
      }
    },
    /** Takes the items of the next batch. Those that conflict with a running item stay. */
    take(): readonly BatchItem<Item, Result>[] {
      const batch = new Set<BatchItem<Item, Result>>();
      let size = 0;
      for (const waiting of inRoundRobin()) {
        if (batch.size === maxItems) break;
        const { conflictKeys } = waiting;
        if (conflictKeys.some((key) => busyKeys.has(key))) continue;
        const newSize = size + waiting.size;
        if (batch.size > 0 && newSize > maxSize) continue;
        size = newSize;
        for (const key of conflictKeys) busyKeys.add(key);
        batch.add(waiting);
      }
      queue = queue.filter((waiting) => !batch.has(waiting));
      return [...batch];
    },
    /** Call when an item that was taken has ended. */
    release({ conflictKeys }: BatchItem<Item, Result>) {
      for (const key of conflictKeys) busyKeys.delete(key);
    },
  };
}
