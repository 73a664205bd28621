import { describe, expect, test } from "bun:test";
import { AppError } from "../../src/base/error.ts";
import { type ObjectStorage, withRetries } from "../../src/domain/object-storage.ts";
import { expectRejection } from "../support/expect-error.ts";
import { bytes } from "./contract.ts";
import { createMemoryStorage } from "./memory.ts";

/** @param failures of each call before it succeeds */
function makeFlaky(failures: number, code: AppError["code"] = "unavailable") {
  const pauses: number[] = [];
  const memory = createMemoryStorage();
  let left = failures;
  async function flaky<Result>(call: () => Promise<Result>): Promise<Result> {
    left -= 1;
    if (left >= 0) throw new AppError(code, "away");
    left = failures;
    return await call();
  }
  const flakyStorage: ObjectStorage = {
    ...memory,
    get: (key) => flaky(() => memory.get(key)),
    create: (...args) => flaky(() => memory.create(...args)),
    list: (prefix) => flaky(() => memory.list(prefix)),
  };
  const storage = withRetries(flakyStorage, 60_000, async (ms) => void pauses.push(ms));
  return { storage, pauses };
}

describe("storage with retries", () => {
  test("calls are repeated five times, after longer and longer pauses", async () => {
    const { storage, pauses } = makeFlaky(5);
    expect(await storage.get("a")).toBeNull();
    expect(pauses).toEqual([250, 500, 1000, 2000, 4000]);
    expect(await storage.create("b", bytes("one"))).toBeTrue();
    expect(pauses).toHaveLength(10);
    await expectRejection(makeFlaky(6).storage.list(""), "unavailable", "away");
  });

  test("calls are repeated while others succeed, and for a time after that", async () => {
    let nowMs = 0;
    const memory = createMemoryStorage();
    const get = (key: string) =>
      key === "away" ? Promise.reject(new AppError("unavailable", "away")) : memory.get(key);
    const sleep = async (ms: number) => {
      nowMs += ms;
      if (nowMs < 100_000) await storage.get("other");
    };
    const storage = withRetries({ ...memory, get }, 60_000, sleep, () => nowMs);
    await expectRejection(storage.get("away"), "unavailable", "away");
    expect(nowMs).toBeWithin(155_000, 165_000);
  });

  test("fewer calls are made at the same time when some fail", async () => {
    let [calls, failures] = [0, 0];
    const get = async () => {
      calls += 1;
      const isTooMuch = calls > 4;
      await Bun.sleep(0);
      calls -= 1;
      if (!isTooMuch) return null;
      failures += 1;
      throw new AppError("unavailable", "fewer");
    };
    const storage = withRetries({ ...createMemoryStorage(), get }, 60_000, async () => {});
    await Promise.all(Array.from({ length: 600 }, (_, at) => storage.get(`${at}`)));
    expect(failures).toBeLessThan(2_000);
  });

  test("calls that have waited for long are repeated, half as many at the same time, when they fail together", async () => {
    let [nowMs, calls] = [0, 0];
    let answers = Promise.withResolvers<null>();
    const get = () => {
      calls += 1;
      return answers.promise;
    };
    const memory = { ...createMemoryStorage(), get };
    const sleep = async () => {};
    const storage = withRetries(memory, 0, sleep, () => nowMs);
    const works = Array.from({ length: 128 }, () => storage.get("a"));
    /** @returns how many calls are made then */
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

  test("errors of the operator are not repeated", async () => {
    const { storage, pauses } = makeFlaky(1, "operator");
    await expectRejection(storage.get("a"), "operator", "away");
    expect(pauses).toEqual([]);
  });
});
