import { expect, test } from "bun:test";
import { createRateLimiter } from "../../src/http/limits/rate-limit.ts";

/** @returns how many of `tries` requests are allowed, with this pause after each */
function makeLimit(perSecond: number) {
  let timeMs = 1_000_000;
  const requireWithinRate = createRateLimiter(perSecond, () => timeMs);
  return (tries: number, pauseMs = 0) => {
    let passed = 0;
    for (let count = 0; count < tries; count += 1) {
      try {
        requireWithinRate("a");
        passed += 1;
      } catch {}
      timeMs += pauseMs;
    }
    return passed;
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
  const passing = makeLimit(10);
  expect([passing(14), passing(1, pauseMs), passing(15)]).toEqual([10, 0, expected]);
});

test("createRateLimiter allows exactly the rate when requests are continuous, and any when it is 0", () => {
  // A burst of 4, and 4 in each of the 10 seconds except for the last millisecond.
  expect(makeLimit(4)(10_000, 1)).toBe(4 + 39);
  expect(makeLimit(0)(1000)).toBe(1000);
});
