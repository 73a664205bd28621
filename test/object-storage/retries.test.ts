import { describe, expect, test } from "bun:test";
import { AppError } from "../../src/base/error.ts";
import { type ObjectStorage, withRetries } from "../../src/domain/object-storage.ts";
import { expectRejection } from "../support/expect-error.ts";
import { bytes } from "./contract.ts";
import { createMemoryStorage } from "./memory.ts";

/** @param failures failures of each call before it succeeds */
function makeFlaky(failures: number, code: AppError["code"] = "unavailable") {
  const pauses: number[] = [];
  const failed = new Map<string, number>();
  function flaky<Result>(name: string, call: (...args: never[]) => Promise<Result>) {
    return async (...args: never[]): Promise<Result> => {
      const what = `${name} ${args[0]}`;
      const count = failed.get(what) ?? 0;
      failed.set(what, count === failures ? 0 : count + 1);
      if (count < failures) throw new AppError(code, "away");
      return call(...args);
    };
  }
  const { url, ...calls } = createMemoryStorage();
  const entries = Object.entries(calls).map(([name, call]) => [
    name,
    flaky<unknown>(name, call as (...args: never[]) => Promise<unknown>),
  ]);
  const storage: ObjectStorage = { url, ...Object.fromEntries(entries) };
  const sleep = async (ms: number) => {
    pauses.push(ms);
  };
  return { storage: withRetries(storage, sleep), pauses };
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

  test("errors of the operator are not repeated", async () => {
    const { storage, pauses } = makeFlaky(1, "operator");
    await expectRejection(storage.get("a"), "operator", "away");
    expect(pauses).toEqual([]);
  });
});
