import { expect, test } from "bun:test";
import { createRateLimiter } from "../../src/http/rate-limit.ts";

/** A rate limiter with a clock that the test moves. */
function makeLimit(perSecond: number) {
  const clock = { timeMs: 1_000_000 };
  const limiter = createRateLimiter(perSecond, () => clock.timeMs);
  const allow = (owner: string) => limiter?.allow(owner) ?? true;
  return {
    allow,
    headers: (owner = "a") => limiter?.headers(owner) ?? {},
    clock,
    /** @returns how many of `tries` simultaneous requests are allowed */
    passing: (tries: number, owner = "a") =>
      Array.from({ length: tries }, () => allow(owner)).filter(Boolean).length,
  };
}

test("headers has the policy and the remaining requests of the token", () => {
  const { passing, headers, clock } = makeLimit(10);
  const policy = '"token";q=10;w=1';
  expect(headers()).toEqual({ "ratelimit-policy": policy, ratelimit: '"token";r=10' });
  passing(3);
  expect(headers()).toEqual({ "ratelimit-policy": policy, ratelimit: '"token";r=7;t=1' });
  passing(20);
  expect(headers()["ratelimit"]).toBe('"token";r=0;t=1');
  expect(headers("b")["ratelimit"]).toBe('"token";r=10');
  clock.timeMs += 500;
  passing(1);
  expect(headers()["ratelimit"]).toBe('"token";r=4;t=1');
});

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

test("createRateLimiter returns null when the rate is 0", () => {
  expect(createRateLimiter(0)).toBeNull();
});

test("createRateLimiter allows exactly the rate when requests are continuous", () => {
  const { clock, allow } = makeLimit(4);
  let passed = 0;
  for (let count = 0; count < 10_000; count += 1) {
    if (allow("a")) passed += 1;
    clock.timeMs += 1;
  }
  // A burst of 4, and 4 in each of the 10 seconds except for the last millisecond.
  expect(passed).toBe(4 + 39);
});

test("createRateLimiter counts each token separately", () => {
  const { clock, passing } = makeLimit(3);
  expect(passing(5, "a")).toBe(3);
  expect(passing(5, "b")).toBe(3);
  clock.timeMs += 1000;
  expect(passing(2, "a")).toBe(2);
  expect(passing(5, "b")).toBe(3);
  expect(passing(5, "a")).toBe(1);
});
