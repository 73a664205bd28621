/** Requests that arrive while a statement runs share the next one: a transaction costs many times as much as a row. */
import { AppError } from "../../base/error.ts";
import type { MaybePromise } from "../../base/maybe-promise.ts";
import { createRoundRobinQueue } from "../../base/round-robin-queue.ts";
import { QUEUE_TIMEOUT_MS } from "../server/connection-queues.ts";

/** After it, the next batch starts although the newest one still runs, e.g. because it waits for a lock. */
const CHECK_INTERVAL_MS = 5;

/** A batch waits for further turns only for this long, e.g. if each one brings one item and takes 2 ms. */
const MAX_WAIT_MS = 5;

export interface BatchOptions<Item, Result> {
  /** @returns the result of each item, in order; a promise for an item that takes longer than the batch */
  run(items: readonly Item[]): Promise<readonly MaybePromise<Result>[]>;
  /** Whether an error of a batch may be that of one of its items: each one then has a batch to itself. The default is no. */
  splitsOn?(error: unknown): boolean;
  /** Maximum number of items in a batch. The next batch starts as soon as this many items wait. */
  readonly maxItems: number;
  readonly maxBatches: number;
  /** Two items with a common key do not run at the same time. The default is no keys. */
  conflictKeysOf?(item: Item): readonly string[];
  /** Each client has an item in a batch before another one has two, so that no one waits for all items of others. */
  clientOf(item: Item): string | null;
  /** Whether the items of a batch are of one client, so that no one waits for a slow item of others. */
  readonly isOfOneClient?: boolean;
}

interface Waiting {
  readonly item: unknown;
  readonly sinceMs: number;
  resolve(result: unknown): void;
  reject(error: unknown): void;
}

type BatchQueue = ReturnType<typeof createQueue>;

function createQueue(options: BatchOptions<unknown, unknown>) {
  return {
    options,
    waiting: [] as Waiting[],
    busyKeys: new Set<string>(),
    running: 0,
    newestMs: 0,
    newestSize: 0,
    scheduled: false,
    timer: undefined as Timer | undefined,
  };
}

function rejectExpired({ waiting }: BatchQueue): void {
  const expiredMs = performance.now() - QUEUE_TIMEOUT_MS;
  while (waiting[0] !== undefined && waiting[0].sinceMs <= expiredMs)
    waiting.shift()?.reject(new AppError("unavailable", "the database is busy"));
}

function take(queue: BatchQueue): readonly Waiting[] {
  const { options, waiting, busyKeys } = queue;
  const { maxItems, clientOf } = options;
  const batch = new Set<Waiting>();
  const clients = createRoundRobinQueue<Waiting>();
  const [first] = waiting;
  for (const each of waiting) {
    const client = clientOf(each.item);
    if (options.isOfOneClient !== true || first === undefined || client === clientOf(first.item))
      clients.add(client, each);
  }
  for (let next = clients.take(); next !== null; next = clients.take()) {
    if (batch.size === maxItems) break;
    const conflictKeys = options.conflictKeysOf?.(next.item) ?? [];
    if (conflictKeys.some((key) => busyKeys.has(key))) continue;
    for (const key of conflictKeys) busyKeys.add(key);
    batch.add(next);
  }
  queue.waiting = waiting.filter((each) => !batch.has(each));
  return [...batch];
}

async function runOrSplit({ options }: BatchQueue, items: readonly unknown[]) {
  try {
    const results = await options.run(items);
    // A missing result rejects the whole batch.
    itemAt(results, items.length - 1);
    return results;
  } catch (error) {
    if (items.length === 1 || options.splitsOn?.(error) !== true) throw error;
    return items.map(async (item) => itemAt(await options.run([item]), 0));
  }
}

async function runBatch(queue: BatchQueue, batch: readonly Waiting[]): Promise<void> {
  queue.running += 1;
  queue.newestMs = performance.now();
  queue.newestSize = batch.length;
  const { options, busyKeys } = queue;
  const items = batch.map(({ item }) => item);
  const running = runOrSplit(queue, items);
  for (const [at, waiting] of batch.entries()) {
    const result = running.then((results) => itemAt(results, at));
    waiting.resolve(result);
    void Promise.allSettled([result]).then(() => {
      for (const key of options.conflictKeysOf?.(waiting.item) ?? []) busyKeys.delete(key);
      startSoon(queue);
    });
  }
  await Promise.allSettled([running]);
  queue.running -= 1;
  // After a turn, in which the clients of this batch send their next requests. Otherwise two halves of the clients
  // would alternate, in batches of half the size.
  startSoon(queue);
}

function mayStart({ options, waiting, running, newestMs }: BatchQueue): boolean {
  if (running >= options.maxBatches) return false;
  if (running === 0 || waiting.length >= options.maxItems) return true;
  return performance.now() - newestMs >= CHECK_INTERVAL_MS;
}

function startBatches(queue: BatchQueue): void {
  queue.scheduled = false;
  clearTimeout(queue.timer);
  rejectExpired(queue);
  while (queue.waiting.length > 0 && mayStart(queue)) {
    const batch = take(queue);
    if (batch.length === 0) break;
    void runBatch(queue, batch);
  }
  if (queue.waiting.length > 0) queue.timer = setTimeout(startBatches, CHECK_INTERVAL_MS, queue);
}

/** The next requests of many busy clients arrive over several turns. If the last batch had one item, nothing waits for them. */
function waitForMore(queue: BatchQueue, lastCount: number, untilMs: number): void {
  const count = queue.waiting.length;
  const isAlone = count === 1 && queue.newestSize <= 1;
  const isReady = isAlone || count === lastCount || count >= queue.options.maxItems;
  if (isReady || performance.now() >= untilMs) startBatches(queue);
  else setImmediate(waitForMore, queue, count, untilMs);
}

function startSoon(queue: BatchQueue): void {
  if (queue.scheduled || queue.waiting.length === 0) return;
  queue.scheduled = true;
  setImmediate(waitForMore, queue, 0, performance.now() + MAX_WAIT_MS);
}

/** @throws {AppError} by its result: unavailable if an item waits for too long */
export function createBatchQueue<Item, Result>(options: BatchOptions<Item, Result>) {
  const queue = createQueue(options);
  return (item: Item) =>
    new Promise<Result>((resolve, reject) => {
      queue.waiting.push({ item, sinceMs: performance.now(), resolve, reject });
      startSoon(queue);
    });
}

export function itemAt<Item>(items: readonly Item[], at: number): Item {
  if (at >= items.length) throw new Error(`the database returned no result ${at}`);
  return items[at] as Item;
}
