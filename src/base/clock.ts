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
