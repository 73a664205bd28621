import { expect, test } from "bun:test";
import { createRateLimiter } from "../../src/http/limits/rate-limit.ts";

/** A rate limiter with a clock that the test moves. */
function makeLimit(perSecond: number) {
  const clock = { timeMs: 1_000_000 };
  const requireWithinRate = createRateLimiter(perSecond, () => clock.timeMs);
  const allow = () => {
    try {
      requireWithinRate("a");
      return true;
    } catch {
      return false;
    }
  };
  return {
    allow,
    clock,
    /** @returns how many of `tries` simultaneous requests are allowed */
    passing: (tries: number) => Array.from({ length: tries }, allow).filter(Boolean).length,
  };
}

test.each([
  [0, 0],
  [99, 0],
  [100, 1],
  [250, 2],
  [999, 9],
  [1001, 10],
  [3_600_000, 10],
])("%i ms after a burst of 10, %i requests are allowed at a rate of 10", (pauseMs, expected) => {
  const { clock, passing } = makeLimit(10);
  expect(passing(15)).toBe(10);
  clock.timeMs += pauseMs;
  expect(passing(15)).toBe(expected);
});

test("createRateLimiter has no limit when the rate is 0", () => {
  expect(makeLimit(0).passing(1000)).toBe(1000);
});

test("createRateLimiter allows exactly the rate when requests are continuous", () => {
  const { clock, allow } = makeLimit(4);
  let passed = 0;
  for (let count = 0; count < 10_000; count += 1) {
    if (allow()) passed += 1;
    clock.timeMs += 1;
  }
  // A burst of 4, and 4 in each of the 10 seconds except for the last millisecond.
  expect(passed).toBe(4 + 39);
});
