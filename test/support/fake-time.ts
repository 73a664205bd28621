import { jest } from "bun:test";

/** Stops the time of timers and of the monotonic clock, for a test without work outside this process. */
export function stopTime() {
  jest.useFakeTimers();
  return {
    /** Lets time pass, and what was waiting for it run. */
    async pass(ms: number): Promise<void> {
      for (let passedMs = 0; passedMs < ms; passedMs += 1) {
        jest.advanceTimersByTime(1);
        await new Promise((resolve) => setImmediate(resolve));
      }
    },
    [Symbol.dispose]: () => void jest.useRealTimers(),
  };
}
