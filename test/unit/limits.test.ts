import { expect, test } from "bun:test";
import { createRateLimiter } from "../../src/http/limits/rate-limit.ts";
import { createSumQueue } from "../../src/http/limits/sum-queue.ts";
import { expectRejection } from "../support/expect-error.ts";

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

test("sums run one after the other, one of each token, two wait, and a client that has disconnected is skipped", async () => {
  const queue = createSumQueue();
  const begun: string[] = [];
  const held = new Map<string, PromiseWithResolvers<string>>();
  const send = (client: string, signal = new AbortController().signal) =>
    queue(client, signal, () => {
      begun.push(client);
      return held.getOrInsert(client, Promise.withResolvers()).promise;
    });
  const first = send("a");
  const left = new AbortController();
  const skipped = expectRejection(send("b", left.signal), "unavailable", /disconnected$/);
  await expectRejection(send("a"), "unavailable", /another one of this token/);
  const third = send("c");
  await expectRejection(send("d"), "unavailable", /^too many sums/);
  await Bun.sleep(0);
  expect(begun).toEqual(["a"]);
  left.abort();
  held.get("a")?.reject(new Error("no"));
  await expect(first).rejects.toThrow("no");
  await skipped;
  await Bun.sleep(0);
  expect(begun).toEqual(["a", "c"]);
  const fourth = send("a");
  held.get("c")?.resolve("sum of c");
  expect(await third).toBe("sum of c");
  held.set("a", Promise.withResolvers());
  held.get("a")?.resolve("sum of a");
  expect(await fourth).toBe("sum of a");
});
