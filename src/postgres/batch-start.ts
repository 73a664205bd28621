/** When a batch starts: late enough to have many items, but without a delay that a client would notice. */

/**
 * If the newest batch has run for this long, e.g. because it waits for a lock, the next one does not wait for it. Also
 * how often a queue with items is checked.
 */
const NEXT_BATCH_MS = 5;

/** A batch waits for further turns only for this long, e.g. if each one brings one item and takes 2 ms. */
const MAX_WAIT_MS = 5;

export interface BatchTiming {
  /** Maximum number of batches that run at the same time. The default is no maximum. */
  readonly maxBatches: number;
  readonly nextBatchMs: number;
  readonly maxWaitMs: number;
}

interface BatchStarterOptions extends Partial<BatchTiming> {
  /** The next batch starts as soon as this many items wait. */
  readonly maxItems: number;
  readonly countWaiting: () => number;
  /** Rejects items that have waited for too long. */
  readonly rejectExpired: () => void;
  /** @returns a promise that resolves when the batch has ended; `null` if every item conflicts with a running one */
  readonly startBatch: () => Promise<void> | null;
}

/** @returns a function to call whenever an item has joined the queue, or may have become able to run */
export function createBatchStarter({
  maxItems,
  countWaiting,
  rejectExpired,
  startBatch,
  maxBatches = Number.POSITIVE_INFINITY,
  nextBatchMs = NEXT_BATCH_MS,
  maxWaitMs = MAX_WAIT_MS,
}: BatchStarterOptions): () => void {
  let running = 0;
  let newestMs = 0;
  let scheduled = false;
  let timer: ReturnType<typeof setTimeout> | undefined;

  function mayStart(): boolean {
    if (running >= maxBatches) return false;
    if (running === 0 || countWaiting() >= maxItems) return true;
    return performance.now() - newestMs >= nextBatchMs;
  }

  function startBatches(): void {
    scheduled = false;
    clearTimeout(timer);
    rejectExpired();
    while (countWaiting() > 0 && mayStart()) {
      const batch = startBatch();
      if (batch === null) break;
      running += 1;
      newestMs = performance.now();
      void batch.then(() => {
        running -= 1;
        // After a turn, in which the clients of this batch send their next requests. Otherwise two halves of the clients
        // would alternate, in batches of half the size.
        startSoon();
      });
    }
    if (countWaiting() > 0) timer = setTimeout(startBatches, NEXT_BATCH_MS);
  }

  /**
   * Waits one more turn, unless the item is alone, and another one as long as each brings more items: the next requests
   * of many busy clients arrive over several turns.
   */
  function waitForMore(lastCount: number, untilMs: number): void {
    const count = countWaiting();
    const isAloneOrFull = count === 1 || count >= maxItems;
    if (isAloneOrFull || count === lastCount || performance.now() >= untilMs) {
      startBatches();
    } else {
      setImmediate(waitForMore, count, untilMs);
    }
  }

  function startSoon(): void {
    if (scheduled || countWaiting() === 0) return;
    scheduled = true;
    setImmediate(waitForMore, 0, performance.now() + maxWaitMs);
  }

  return startSoon;
}
