/**
 * Batches: requests that arrive in one turn of the event loop share one statement. Requests that arrive while it
 * runs wait for it and share the next one, because a transaction costs many times as much as a row. A batch starts late
 * enough to have many items, but without a delay that a client would notice.
 */
import { AppError } from "../../base/error.ts";
import type { MaybePromise } from "../../base/maybe-promise.ts";
import { createRoundRobinQueue } from "../../base/round-robin-queue.ts";
import { QUEUE_TIMEOUT_MS } from "../server/connection-queues.ts";

/** How often a queue with items is checked. */
const CHECK_INTERVAL_MS = 5;

/** A batch waits for further turns only for this long, e.g. if each one brings one item and takes 2 ms. */
const MAX_WAIT_MS = 5;

export interface BatchOptions<Item, Result> {
  /** @returns the result of each item, in order; a promise for an item that takes longer than the batch */
  readonly run: (items: readonly Item[]) => Promise<readonly MaybePromise<Result>[]>;
  /** Whether an error of a batch may be that of one of its items: each one then has a batch to itself. The default is no. */
  readonly splitsOn?: (error: unknown) => boolean;
  /** Maximum number of items in a batch. The next batch starts as soon as this many items wait. */
  readonly maxItems: number;
  readonly maxBatches: number;
  /** Maximum size of a batch. A larger item has a batch to itself. The default is no maximum. */
  readonly maxSize?: number;
  /** The default is 0. */
  readonly sizeOf?: (item: Item) => number;
  /** Two items with a common key do not run at the same time. The default is no keys. */
  readonly conflictKeysOf?: (item: Item) => readonly string[];
  /** Each client has an item in a batch before another one has two, so that nobody waits for all items of others. */
  readonly clientOf: (item: Item) => string | null;
  /** Whether the items of a batch are of one client, so that nobody waits for a slow item of others. */
  readonly isOfOneClient?: boolean;
  /**
   * After this long the next batch starts although the newest one still runs, e.g. because it waits for a lock.
   */
  readonly nextBatchMs?: number;
  readonly maxWaitMs?: number;
}

interface BatchItem<Item, Result> {
  readonly item: Item;
  readonly sinceMs: number;
  readonly resolve: (result: MaybePromise<Result>) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * @returns a function that runs an item in a batch. It rejects with the error of the batch, or {AppError} unavailable
 * if the item waits for too long
 */
export function createBatchQueue<Item, Result>({
  run,
  splitsOn = () => false,
  maxItems,
  maxBatches,
  maxSize = Number.POSITIVE_INFINITY,
  sizeOf = () => 0,
  conflictKeysOf = () => [],
  clientOf,
  isOfOneClient = false,
  nextBatchMs = CHECK_INTERVAL_MS,
  maxWaitMs = MAX_WAIT_MS,
}: BatchOptions<Item, Result>): (item: Item) => Promise<Result> {
  type Waiting = BatchItem<Item, Result>;
  let queue: Waiting[] = [];
  /** Keys of the items that are running. */
  const busyKeys = new Set<string>();
  let running = 0;
  let newestMs = 0;
  let scheduled = false;
  let timer: ReturnType<typeof setTimeout> | undefined;

  function rejectExpired(): void {
    const expiredMs = performance.now() - QUEUE_TIMEOUT_MS;
    while (queue[0] !== undefined && queue[0].sinceMs <= expiredMs) {
      queue.shift()?.reject(new AppError("unavailable", "the database is busy"));
    }
  }

  /** Takes the items of the next batch. Those that conflict with a running item stay. */
  function take(): readonly Waiting[] {
    const batch = new Set<Waiting>();
    const clients = createRoundRobinQueue<Waiting>();
    const [first] = queue;
    for (const waiting of queue) {
      const client = clientOf(waiting.item);
      if (!isOfOneClient || first === undefined || client === clientOf(first.item))
        clients.add(client, waiting);
    }
    let size = 0;
    for (let waiting = clients.take(); waiting !== null; waiting = clients.take()) {
      if (batch.size === maxItems) break;
      const conflictKeys = conflictKeysOf(waiting.item);
      const itemSize = sizeOf(waiting.item);
      if (conflictKeys.some((key) => busyKeys.has(key))) continue;
      if (batch.size > 0 && size + itemSize > maxSize) continue;
      size += itemSize;
      for (const key of conflictKeys) busyKeys.add(key);
      batch.add(waiting);
    }
    queue = queue.filter((waiting) => !batch.has(waiting));
    return [...batch];
  }

  function release({ item }: Waiting): void {
    for (const key of conflictKeysOf(item)) busyKeys.delete(key);
  }

  async function settle(ended: Waiting, result: MaybePromise<Result>): Promise<void> {
    ended.resolve(result);
    await Promise.allSettled([result]);
    release(ended);
    startSoon();
  }

  async function runOrSplit(batch: readonly Item[]): Promise<readonly MaybePromise<Result>[]> {
    try {
      return await run(batch);
    } catch (error) {
      if (batch.length === 1 || !splitsOn(error)) throw error;
      return batch.map(async (item) => itemAt(await run([item]), 0));
    }
  }

  async function runBatch(batch: readonly Waiting[]): Promise<void> {
    running += 1;
    newestMs = performance.now();
    try {
      const results = await runOrSplit(batch.map(({ item }) => item));
      // Before the first is settled, so that a missing result rejects the whole batch.
      const pairs = batch.map((ended, at) => [ended, itemAt(results, at)] as const);
      for (const [ended, result] of pairs) void settle(ended, result);
    } catch (error) {
      for (const ended of batch) {
        ended.reject(error);
        release(ended);
      }
    }
    running -= 1;
    // After a turn, in which the clients of this batch send their next requests. Otherwise two halves of the clients
    // would alternate, in batches of half the size.
    startSoon();
  }

  function mayStart(): boolean {
    if (running >= maxBatches) return false;
    if (running === 0 || queue.length >= maxItems) return true;
    return performance.now() - newestMs >= nextBatchMs;
  }

  function startBatches(): void {
    scheduled = false;
    clearTimeout(timer);
    rejectExpired();
    while (queue.length > 0 && mayStart()) {
      const batch = take();
      // Every item conflicts with a running one.
      if (batch.length === 0) break;
      void runBatch(batch);
    }
    if (queue.length > 0) timer = setTimeout(startBatches, CHECK_INTERVAL_MS);
  }

  /**
   * Waits one more turn, unless the item is alone, and another one as long as each brings more items: the next requests
   * of many busy clients arrive over several turns.
   */
  function waitForMore(lastCount: number, untilMs: number): void {
    const count = queue.length;
    const isAloneOrFull = count === 1 || count >= maxItems;
    if (isAloneOrFull || count === lastCount || performance.now() >= untilMs) {
      startBatches();
    } else {
      setImmediate(waitForMore, count, untilMs);
    }
  }

  function startSoon(): void {
    if (scheduled || queue.length === 0) return;
    scheduled = true;
    setImmediate(waitForMore, 0, performance.now() + maxWaitMs);
  }

  return (item) =>
    new Promise<Result>((resolve, reject) => {
      queue.push({ item, sinceMs: performance.now(), resolve, reject });
      startSoon();
    });
}

/** @throws if there is no such item */
export function itemAt<Item>(items: readonly Item[], at: number): Item {
  if (at >= items.length) throw new Error(`the database returned no result ${at}`);
  return items[at] as Item;
}
