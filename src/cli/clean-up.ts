/** Deletes expired idempotency keys and changes from time to time, while a server runs. */
import { messageOf } from "../base/error.ts";
import type { Log } from "../base/log.ts";
import { createSettledClock } from "../base/settled-clock.ts";
import type { Store } from "../domain/store.ts";

const INTERVAL_MS = 60 * 1000;

interface CleanUpOptions {
  readonly changesMs: number;
  readonly now: () => Date;
  readonly log: Pick<Log, "warn">;
  readonly intervalMs?: number;
  readonly monotonicMs?: () => number;
}

/**
 * @param current returns the store of the moment; `null` if there is none. One that takes no writes stays as it is
 * @returns ends it when it is disposed of, after the transaction that is running
 */
export function startCleanUp(
  current: () => Pick<Store, "deleteExpiredKeys" | "changes" | "isPrimary"> | null,
  { changesMs, now, log, intervalMs = INTERVAL_MS, monotonicMs }: CleanUpOptions,
): AsyncDisposable {
  const settledMs = createSettledClock(() => now().getTime(), monotonicMs);
  let isStopping = false;
  let running: Promise<void> | null = null;

  async function cleanUp(): Promise<void> {
    try {
      const before = new Date(settledMs() - changesMs);
      const store = current();
      if (!store?.isPrimary()) return;
      // In between, other writes run.
      while (!isStopping && (await store.deleteExpiredKeys()));
      while (!isStopping && (await store.changes.deleteExpired(before)));
    } catch (error) {
      const reason = messageOf(error);
      log.warn("cleanup of expired idempotency keys and changes failed", { reason });
    } finally {
      running = null;
    }
  }

  const timer = setInterval(() => {
    // It can take longer than the interval.
    running ??= cleanUp();
  }, intervalMs);

  return {
    async [Symbol.asyncDispose]() {
      clearInterval(timer);
      isStopping = true;
      await running;
    },
  };
}
