import { expect, test } from "bun:test";
import { systemClock } from "../../src/base/clock.ts";
import { AppError } from "../../src/base/error.ts";
import { withRetries } from "../../src/domain/object-storage.ts";
import { expectRejection } from "../support/expect-error.ts";
import { bytes } from "./contract.ts";
import { createMemoryStorage, wrapStorage } from "./memory.ts";

/** A storage whose calls with these keys fail, with the clock that the pauses between them move. */
function makeFlaky(isAway: (key: string, nowMs: number) => boolean, callMs = 0) {
  let nowMs = 0;
  const results: string[] = [];
  const flakyStorage = wrapStorage(createMemoryStorage(), async (call, _, key) => {
    nowMs += callMs;
    if (isAway(key, nowMs)) throw new AppError("unavailable", "away");
    return await call();
  });
  const onResult = (error: unknown) => void results.push(error === null ? "worked" : "failed");
  return {
    results,
    nowMs: () => nowMs,
    open(stillMs = 10_000, onSleep: () => unknown = () => {}) {
      const sleep = async (ms: number) => {
        nowMs += ms;
        await onSleep();
      };
      const clock = { ...systemClock, sleep, monotonicMs: () => nowMs };
      return withRetries(flakyStorage, clock, { stillMs, onResult });
    },
  };
}

test("calls are given up when none has succeeded for 10 s, not before the second attempt, or at once by an operator's error", async () => {
  const away = makeFlaky(() => true);
  await expectRejection(away.open().list("bases/"), "unavailable", "away (bases/*)");
  expect([away.nowMs(), away.results.length]).toEqual([10_750, 13]);
  const slow = makeFlaky((_, nowMs) => nowMs < 20_000, 12_000);
  expect(await slow.open().get("a")).toBeNull();
  expect(slow.results).toEqual(["failed", "worked"]);
  // Each is repeated by itself.
  const lost = makeFlaky((_, nowMs) => nowMs % 10_000 < 9_000);
  const storage = lost.open();
  for (const key of ["a", "b"]) expect(await storage.create(key, bytes(key))).toBeTrue();
  await storage.put("c", bytes("c"));
  expect((await storage.list("")).map(({ key }) => key)).toEqual(["a", "b", "c"]);
  const get = () => Promise.reject(new AppError("operator", "forbidden"));
  const forbidden = withRetries({ ...createMemoryStorage(), get }, systemClock);
  await expectRejection(forbidden.get("a"), "operator", "forbidden");
});

test("a call is given up after a minute while others succeed, or later in a long transfer", async () => {
  for (const [stillMs, untilMs] of [
    [undefined, 60_000],
    [180_000, 180_000],
  ] as const) {
    const flaky = makeFlaky((key) => key === "away");
    const storage = flaky.open(stillMs, () => storage.get("other"));
    await expectRejection(storage.get("away"), "unavailable", "away");
    expect(flaky.nowMs()).toBeWithin(untilMs, untilMs + 1_001);
  }
});

test("calls that have waited for long are repeated, half as many at the same time, when they fail together", async () => {
  let [nowMs, calls] = [0, 0];
  let answers = Promise.withResolvers<null>();
  const get = () => {
    calls += 1;
    return answers.promise;
  };
  const memory = { ...createMemoryStorage(), get };
  const clock = { ...systemClock, sleep: async () => {}, monotonicMs: () => nowMs };
  const storage = withRetries(memory, clock);
  const works = Array.from({ length: 128 }, () => storage.get("a"));
  const callsAfter = async (settle: (current: typeof answers) => void) => {
    const current = answers;
    [answers, calls] = [Promise.withResolvers(), 0];
    settle(current);
    await Bun.sleep(0);
    return calls;
  };
  nowMs = 20_000;
  expect(await callsAfter(({ resolve }) => resolve(null))).toBe(64);
  const away = new AppError("unavailable", "away");
  expect(await callsAfter(({ reject }) => reject(away))).toBe(32);
  answers.resolve(null);
  await Promise.all(works);
});
