/** Numbers changes soon after the writes of this process and, while somebody waits for changes, those of others. */
import type { ChangeStore } from "../../domain/change.ts";
import type { Database } from "../server/connection.ts";
import type { NumberChanges } from "./numbering.ts";

const POLL_MS = 100;
/** Minimum time from one check to the next: the writes in between share it. */
const CHECK_INTERVAL_MS = 50;
/** How soon after a write its process numbers if nobody waits. */
const NUMBER_INTERVAL_MS = 1_000;

export function watchChanges(db: Database, numberChanges: NumberChanges): ChangeStore["subscribe"] {
  const listeners = new Set<() => void>();
  let seen = "";
  let checkedMs = 0;
  let timer: Timer | undefined;
  let dueMs = Number.POSITIVE_INFINITY;
  let polling: Timer | undefined;

  async function check(): Promise<void> {
    clearTimeout(timer);
    dueMs = Number.POSITIVE_INFINITY;
    checkedMs = performance.now();
    try {
      const { feed, last, isBehind } = await numberChanges();
      if (isBehind) checkIn(0);
      const state = `${feed} ${last}`;
      if (state === seen) return;
      seen = state;
      for (const listener of [...listeners]) listener();
    } catch {
      // The database is unreachable. The next check, or the next read, numbers what this one did not.
    }
  }

  function checkIn(delayMs: number): void {
    const ms = performance.now() + delayMs;
    if (dueMs <= ms) return;
    clearTimeout(timer);
    dueMs = ms;
    timer = setTimeout(check, delayMs).unref();
  }

  db.onWrite(() => {
    if (listeners.size === 0) checkIn(NUMBER_INTERVAL_MS);
    else checkIn(Math.max(0, checkedMs + CHECK_INTERVAL_MS - performance.now()));
  });

  return (listener) => {
    listeners.add(listener);
    if (listeners.size === 1) polling = setInterval(check, POLL_MS);
    return {
      [Symbol.dispose]() {
        listeners.delete(listener);
        if (listeners.size === 0) clearInterval(polling);
      },
    };
  };
}
