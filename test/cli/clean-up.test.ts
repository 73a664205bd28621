import { expect, test } from "bun:test";
import { startCleanUp } from "../../src/cli/clean-up.ts";
import type { Store } from "../../src/domain/store.ts";
import { stopTime } from "../support/fake-time.ts";

test("the cleanup begins again when the last one has ended, also if it has failed, and immediately if more is left, until it is stopped", async () => {
  using time = stopTime();
  const begun: Date[] = [];
  // The deletion of changes ends when the test says so, and whether more are left.
  const ends: PromiseWithResolvers<boolean>[] = [];
  const warnings: unknown[] = [];
  const store = {
    deleteExpiredKeys: async () => false,
    changes: {
      deleteExpired(before) {
        const end = Promise.withResolvers<boolean>();
        begun.push(before);
        ends.push(end);
        return end.promise;
      },
    },
    isPrimary: () => true,
  } as Pick<Store, "deleteExpiredKeys" | "changes" | "isPrimary">;
  let hours = 0;
  const cleanUp = startCleanUp(() => store, {
    changesMs: 30 * 24 * 60 * 60 * 1000,
    intervalMs: 1,
    monotonicMs: () => 3_600_000 * hours++,
    now: () => new Date("2026-11-26T00:00:00.000Z"),
    log: { warn: (_event, fields) => void warnings.push(fields) },
  });
  await time.pass(20);
  expect(begun).toHaveLength(1);
  ends[0]?.reject(new Error("on purpose"));
  await time.pass(2);
  expect(begun).toHaveLength(2);
  expect(warnings).toEqual([{ reason: "on purpose" }]);
  ends[1]?.resolve(true);
  await time.pass(2);
  let isStopped = false;
  const stopping = cleanUp[Symbol.asyncDispose]().then(() => {
    isStopped = true;
  });
  await time.pass(20);
  expect(isStopped).toBe(false);
  ends[2]?.resolve(true);
  await stopping;
  await time.pass(20);
  expect(begun).toHaveLength(3);
  // By the first look at a clock, nothing is old enough.
  expect(begun[0]?.getTime()).toBeLessThan(0);
  expect(begun.slice(1)).toEqual(Array(2).fill(new Date("2026-10-27T00:00:00.000Z")));
});
