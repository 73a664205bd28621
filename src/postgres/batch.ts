/**
 * Batches: requests that arrive in one turn of the event loop share one statement. Requests that arrive while it
 * runs wait for it and share the next one, because a transaction costs many times as much as a row. A batch starts late
 * enough to have many items, but without a delay that a client would notice.
 */
import type { Maybe } from "../maybe.ts";
import { type BatchItem, type BatchItemsOptions, createBatchItems } from "./batch-items.ts";

/**
 * After this long the next batch starts although the newest one still runs, e.g. because it waits for a lock. A queue with
 * items is checked as often.
 */
const NEXT_BATCH_MS = 5;

/** A batch waits for further turns only for this long, e.g. if each one brings one item and takes 2 ms. */
const MAX_WAIT_MS = 5;

/**
 * Runs items together. The batch ends when the promise settles.
 * @returns the result of each item, in order; a promise for an item that takes longer than the batch
 */
export type RunBatch<Item, Result> = (items: readonly Item[]) => Promise<readonly Maybe<Result>[]>;

export interface BatchOptions<Item, Result> extends BatchItemsOptions<Item> {
  readonly run: RunBatch<Item, Result>;
  /**
   * Whether this error of a batch of so many items splits it: one of them may have caused it, and each one runs alone, so
   * that only that one fails. The default is no.
   */
  readonly splitsOn?: (error: unknown, count: number) => boolean;
  /** Runs an item of a batch that was split. The default is a separate batch. */
  readonly runAlone?: (item: Item) => Promise<Result>;
  /** Maximum number of batches that run at the same time. The default is no maximum. */
  readonly maxBatches?: number;
  readonly nextBatchMs?: number;
  readonly maxWaitMs?: number;
}

/**
 * @returns a function that runs an item in a batch. It rejects with the error of the batch, or {AppError} unavailable
 * if the item waits for too long
 */
export function createBatchQueue<Item, Result>({
  run,
  splitsOn = () => false,
  runAlone = async (item) => itemAt(await run([item]), 0),
  maxBatches = Number.POSITIVE_INFINITY,
  nextBatchMs = NEXT_BATCH_MS,
  maxWaitMs = MAX_WAIT_MS,
  ...options
}: BatchOptions<Item, Result>): (item: Item) => Promise<Result> {
  const { maxItems } = options;
  const items = createBatchItems<Item, Result>(options);
  /** Number of batches that are running. */
  let running = 0;
  let newestMs = 0;
  let scheduled = false;
  let timer: ReturnType<typeof setTimeout> | undefined;

  function settle(ended: BatchItem<Item, Result>, result: Maybe<Result>): void {
    ended.resolve(result);
    const end = () => {
      items.release(ended);
      startSoon();
    };
    if (result instanceof Promise) result.then(end, end);
    else end();
  }

  async function runOrSplit(batch: readonly Item[]): Promise<readonly Maybe<Result>[]> {
    try {
      return await run(batch);
    } catch (error) {
      if (splitsOn(error, batch.length)) return batch.map(runAlone);
      throw error;
    }
  }

  async function runBatch(batch: readonly BatchItem<Item, Result>[]): Promise<void> {
    running += 1;
    newestMs = performance.now();
    try {
      const results = await runOrSplit(batch.map(({ item }) => item));
      // Before the first is settled, so that a missing result rejects the whole batch.
      const pairs = batch.map((ended, at) => [ended, itemAt(results, at)] as const);
      for (const [ended, result] of pairs) settle(ended, result);
    } catch (error) {
      for (const ended of batch) {
        ended.reject(error);
        items.release(ended);
      }
    }
    running -= 1;
    // After a turn, in which the clients of this batch send their next requests. Otherwise two halves of the clients
    // would alternate, in batches of half the size.
    startSoon();
  }

  function mayStart(): boolean {
    if (running >= maxBatches) return false;
    if (running === 0 || items.count() >= maxItems) return true;
    return performance.now() - newestMs >= nextBatchMs;
  }

  function startBatches(): void {
    scheduled = false;
    clearTimeout(timer);
    items.rejectExpired();
    while (items.count() > 0 && mayStart()) {
      const batch = items.take();
      // Every item conflicts with a running one.
      if (batch.length === 0) break;
      void runBatch(batch);
    }
    if (items.count() > 0) timer = setTimeout(startBatches, NEXT_BATCH_MS);
  }

  /**
   * Waits one more turn, unless the item is alone, and another one as long as each brings more items: the next requests
   * of many busy clients arrive over several turns.
   */
  function waitForMore(lastCount: number, untilMs: number): void {
    const count = items.count();
    const isAloneOrFull = count === 1 || count >= maxItems;
    if (isAloneOrFull || count === lastCount || performance.now() >= untilMs) {
      startBatches();
    } else {
      setImmediate(waitForMore, count, untilMs);
    }
  }

  function startSoon(): void {
    if (scheduled || items.count() === 0) return;
    scheduled = true;
    setImmediate(waitForMore, 0, performance.now() + maxWaitMs);
  }

  return (item) => {
    const result = items.add(item);
    startSoon();
    return result;
  };
}

/**
 * @returns the item at an index, which may be `undefined` itself
 * @throws if there is none
 */
export function itemAt<Item>(items: readonly (Item | undefined)[], at: number): Item {
  const item = items[at];
  if (item === undefined && !Object.hasOwn(items, at)) {
    throw new Error(`the database returned no result ${at}`);
  }
  return item as Item;
}

/** @returns the rows in the order of their `position`, which starts at 1; positions without a row stay empty */
export function byPosition<Row extends { readonly position: number }>(
  rows: readonly Row[],
): (Row | undefined)[] {
  const ordered: (Row | undefined)[] = [];
  for (const row of rows) ordered[row.position - 1] = row;
  return ordered;
}
