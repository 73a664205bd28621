import { jest } from "bun:test";

interface FakeTime extends Disposable {
  /** Lets time pass, and what was waiting for it run. */
  pass(ms: number): Promise<void>;
}

/** Stops the time of timers and of the monotonic clock, for a test without work outside this process. */
export function stopTime(): FakeTime {
  jest.useFakeTimers();
  return {
    async pass(ms) {
      for (let passedMs = 0; passedMs < ms; passedMs += 1) {
        jest.advanceTimersByTime(1);
        await new Promise((resolve) => setImmediate(resolve));
      }
    },
    [Symbol.dispose]: () => void jest.useRealTimers(),
  };
}
