/**
 * Batches: requests that arrive in one turn of the event loop share one statement. Requests that arrive while it
 * runs wait for it and share the next one, because a transaction costs many times as much as a row.
 */
import { AppError } from "../error.ts";
import { QUEUE_TIMEOUT_MS } from "./limiter.ts";

/**
 * If the newest batch has run for this long, e.g. because it waits for a lock, the next one does not wait for it. Also
 * how often a queue with items is checked.
 */
const NEXT_BATCH_MS = 5;

/** A batch waits for further turns only for this long, e.g. if each one brings one item and takes 2 ms. */
const MAX_WAIT_MS = 5;

export interface BatchOptions<Item, Result> {
  /**
   * Runs items together. The batch ends when the promise settles.
   * @returns the result of each item, in order; a promise for an item that takes longer than the batch
   */
  readonly run: (items: readonly Item[]) => Promise<readonly (Result | Promise<Result>)[]>;
  /** Maximum number of items in a batch. The next batch starts as soon as this many items wait. */
  readonly max_items: number;
  /** Maximum number of batches that run at the same time. The default is no maximum. */
  readonly max_batches?: number;
  /** Maximum size of a batch. A larger item has a batch to itself. */
  readonly max_size?: number;
  /** The default is 0. */
  readonly sizeOf?: (item: Item) => number;
  /** Two items with a common key do not run at the same time. The default is no keys. */
  readonly conflictKeysOf?: (item: Item) => readonly string[];
  readonly queue_timeout_ms?: number;
  readonly next_batch_ms?: number;
  readonly max_wait_ms?: number;
}

interface Waiting<Item, Result> {
  readonly item: Item;
  readonly conflict_keys: readonly string[];
  readonly since_ms: number;
  readonly resolve: (result: Result | Promise<Result>) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * @returns a function that runs an item in a batch. It rejects with the error of the batch, or {AppError} unavailable
 * if the item waits for too long
 */
export function createBatchQueue<Item, Result>({
  run,
  max_items,
  max_batches = Number.POSITIVE_INFINITY,
  max_size = Number.POSITIVE_INFINITY,
  sizeOf = () => 0,
  conflictKeysOf = () => [],
  queue_timeout_ms = QUEUE_TIMEOUT_MS,
  next_batch_ms = NEXT_BATCH_MS,
  max_wait_ms = MAX_WAIT_MS,
}: BatchOptions<Item, Result>): (item: Item) => Promise<Result> {
  let queue: Waiting<Item, Result>[] = [];
  /** Keys of the items that are running. */
  const busy_keys = new Set<string>();
  let running = 0;
  let newest_ms = 0;
  let scheduled = false;
  let timer: ReturnType<typeof setTimeout> | undefined;

  function rejectExpired(): void {
    const expired_ms = performance.now() - queue_timeout_ms;
    while (queue[0] !== undefined && queue[0].since_ms <= expired_ms) {
      queue.shift()?.reject(new AppError("unavailable", "the database is busy"));
    }
  }

  function mayStart(): boolean {
    if (running === 0 || queue.length >= max_items) return running < max_batches;
    return running < max_batches && performance.now() - newest_ms >= next_batch_ms;
  }

  /** Moves the items of the next batch out of the queue. Those that conflict with a running item stay. */
  function takeBatch(): Waiting<Item, Result>[] {
    const batch: Waiting<Item, Result>[] = [];
    let size = 0;
    queue = queue.filter((waiting) => {
      const { item, conflict_keys } = waiting;
      if (batch.length === max_items || conflict_keys.some((key) => busy_keys.has(key)))
        return true;
      const new_size = size + sizeOf(item);
      if (batch.length > 0 && new_size > max_size) return true;
      size = new_size;
      for (const key of conflict_keys) busy_keys.add(key);
      batch.push(waiting);
      return false;
    });
    return batch;
  }

  function release({ conflict_keys }: Waiting<Item, Result>): void {
    for (const key of conflict_keys) busy_keys.delete(key);
  }

  function settle(waiting: Waiting<Item, Result>, result: Result | Promise<Result>): void {
    waiting.resolve(result);
    const end = () => {
      release(waiting);
      schedule();
    };
    if (result instanceof Promise) result.then(end, end);
    else end();
  }

  async function start(batch: readonly Waiting<Item, Result>[]): Promise<void> {
    running += 1;
    newest_ms = performance.now();
    try {
      const results = await run(batch.map(({ item }) => item));
      for (const [at, waiting] of batch.entries()) {
        settle(waiting, results[at] as Result | Promise<Result>);
      }
    } catch (error) {
      for (const waiting of batch) {
        waiting.reject(error);
        release(waiting);
      }
    } finally {
      running -= 1;
      // After a turn, in which the clients of this batch send their next requests. Otherwise two halves of the clients
      // would take turns, in batches of half the size.
      schedule();
    }
  }

  function startBatches(): void {
    scheduled = false;
    clearTimeout(timer);
    rejectExpired();
    while (queue.length > 0 && mayStart()) {
      const batch = takeBatch();
      // Every item in the queue conflicts with a running one.
      if (batch.length === 0) break;
      void start(batch);
    }
    if (queue.length > 0) timer = setTimeout(startBatches, NEXT_BATCH_MS);
  }

  function schedule(): void {
    if (scheduled || queue.length === 0) return;
    scheduled = true;
    setImmediate(waitForMore, 0, performance.now() + max_wait_ms);
  }

  /**
   * Waits one more turn, unless the item is alone, and another one as long as each brings more items: the next requests
   * of many busy clients arrive over several turns.
   */
  function waitForMore(last_length: number, until_ms: number): void {
    const is_alone_or_full = queue.length === 1 || queue.length >= max_items;
    if (is_alone_or_full || queue.length === last_length || performance.now() >= until_ms) {
      startBatches();
    } else {
      setImmediate(waitForMore, queue.length, until_ms);
    }
  }

  return (item) =>
    new Promise<Result>((resolve, reject) => {
      const conflict_keys = conflictKeysOf(item);
      queue.push({ item, conflict_keys, since_ms: performance.now(), resolve, reject });
      schedule();
    });
}

/**
 * Wraps `run`: after an error that one item may have caused, runs each item alone.
 * @param run reads items, so that it can run again
 * @param isOfOneItem whether one item may have caused the error
 */
export function separateOnError<Item, Result>(
  run: (items: readonly Item[]) => Promise<readonly (Result | Promise<Result>)[]>,
  isOfOneItem: (error: unknown) => boolean,
): (items: readonly Item[]) => Promise<readonly (Result | Promise<Result>)[]> {
  return async (items) => {
    try {
      return await run(items);
    } catch (error) {
      if (items.length === 1 || !isOfOneItem(error)) throw error;
      return items.map(async (item) => (await run([item]))[0] as Result);
    }
  };
}

/** @returns the rows in the order of their `position`, which starts at 1; positions without a row stay empty */
export function byPosition<Row extends { readonly position: number }>(rows: readonly Row[]): Row[] {
  const ordered: Row[] = [];
  for (const row of rows) ordered[row.position - 1] = row;
  return ordered;
}
