/** Deletes expired idempotency keys and changes from time to time, while a server runs. */
import { type Clock, systemClock } from "../base/clock.ts";
import { messageOf } from "../base/error.ts";
import type { Log } from "../base/log.ts";
import { createSettledClock } from "../base/settled-clock.ts";
import { KEY_LIFETIME_MS } from "../domain/idempotency.ts";
import type { Store } from "../domain/store.ts";

const INTERVAL_MS = 60 * 1000;

/** @param current the store of the moment, or `null`. @returns ends it when disposed of, after the transaction that is running */
export function startCleanUp(
  current: () => Pick<Store, "deleteExpiredKeys" | "changes" | "isPrimary"> | null,
  changesMs: number,
  log: Pick<Log, "warn">,
  clock: Clock = systemClock,
): AsyncDisposable {
  const settledMs = createSettledClock(clock.nowMs, clock.monotonicMs);
  let isStopping = false;
  let running: Promise<void> | null = null;

  async function cleanUp(): Promise<void> {
    try {
      const nowMs = settledMs();
      const store = current();
      if (!store?.isPrimary()) return;
      const before = (ageMs: number) => new Date(nowMs - ageMs);
      // In between, other writes run.
      while (!isStopping && (await store.deleteExpiredKeys(before(KEY_LIFETIME_MS))));
      while (!isStopping && (await store.changes.deleteExpired(before(changesMs))));
    } catch (error) {
      const reason = messageOf(error);
      log.warn("cleanup of expired idempotency keys and changes failed", { reason });
    } finally {
      running = null;
    }
  }

  const timer = clock.every(INTERVAL_MS, () => {
    // It can take longer than the interval.
    running ??= cleanUp();
  });

  return {
    async [Symbol.asyncDispose]() {
      timer[Symbol.dispose]();
      isStopping = true;
      await running;
    },
  };
}
