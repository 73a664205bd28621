import { setTimeout } from "node:timers/promises";

export interface Clock {
  /** Never goes back. */
  readonly monotonicMs: () => number;
  /** Of the wall: for people, never an order or an interval. */
  readonly nowMs: () => number;
  /** Resolves after this time, or when the signal is aborted. */
  readonly sleep: (ms: number, signal?: AbortSignal) => Promise<void>;
  /** Runs work again and again, until it is disposed of, which the work itself may do. */
  readonly every: (ms: number, work: () => void) => Disposable;
}

export const systemClock: Clock = {
  monotonicMs: () => performance.now(),
  nowMs: Date.now,
  sleep: (ms, signal) => setTimeout(ms, undefined, signal && { signal }).catch(() => {}),
  every(ms, work) {
    const timer = setInterval(work, ms);
    return { [Symbol.dispose]: () => clearInterval(timer) };
  },
};

/** @returns a function that returns the time as RFC 3339, and keeps it: a busy server needs many in one millisecond */
export function createTimestamp(now: () => Date): () => string {
  let [ms, text] = [Number.NaN, ""];
  return () => {
    const time = now();
    if (time.getTime() !== ms) [ms, text] = [time.getTime(), time.toISOString()];
    return text;
  };
}
