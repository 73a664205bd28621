import { expect, test } from "bun:test";
import { startCleanUp } from "../../src/cli/clean-up.ts";
import type { Store } from "../../src/domain/store.ts";

const now = () => new Date("2026-11-26T00:00:00.000Z");
/** So old is nothing. */
const unknown = new Date("1969-12-02T00:00:00.000Z");

/** Starts a cleanup of a store whose deletion of changes ends when the test says so, and whether more are left. */
function start() {
  const clock = { time: now() };
  const begun: Date[] = [];
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
  const warn = (_event: string, fields?: object) => void warnings.push(fields);
  let hours = 0;
  const monotonicMs = () => 3_600_000 * hours++;
  const times = { changesMs: 30 * 24 * 60 * 60 * 1000, intervalMs: 1, monotonicMs };
  const options = { ...times, now: () => clock.time, log: { warn } };
  const cleanUp = startCleanUp(() => store, options);
  return {
    clock,
    begun,
    ends,
    warnings,
    stop: () => cleanUp[Symbol.asyncDispose](),
    async until(runs: number) {
      while (begun.length < runs) await Bun.sleep(1);
    },
  };
}

test("the cleanup begins again when the last one has ended, also if it has failed, and at once if more is left", async () => {
  const { begun, ends, warnings, until, stop } = start();
  await until(1);
  await Bun.sleep(20);
  expect(begun).toHaveLength(1);
  ends[0]?.reject(new Error("on purpose"));
  await until(2);
  expect(warnings).toEqual([{ reason: "on purpose" }]);
  ends[1]?.resolve(true);
  await until(3);
  ends[2]?.resolve(false);
  await stop();
});

test("the cleanup deletes nothing by a clock that it has seen for less than an hour", async () => {
  const { begun, clock, ends, until, stop } = start();
  const ahead = new Date("2027-01-26T00:00:00.000Z");
  for (const [at, time] of [now(), now(), ahead, now(), now()].entries()) {
    clock.time = time;
    ends[at - 1]?.resolve(false);
    await until(at + 1);
  }
  ends[4]?.resolve(false);
  await stop();
  const [first, second, third = second, ...others] = begun;
  expect([first, second]).toEqual([unknown, new Date("2026-10-27T00:00:00.000Z")]);
  // Time has passed, but no step.
  expect(third?.getTime()).toBe((second?.getTime() ?? 0) + 3_600_000);
  for (const other of others) expect(other.getTime()).toBeLessThanOrEqual(second?.getTime() ?? 0);
});

test("the cleanup waits for the transaction that is running when it is stopped, and begins no other one", async () => {
  const { begun, ends, until, stop } = start();
  await until(1);
  let isStopped = false;
  const stopping = stop().then(() => {
    isStopped = true;
  });
  await Bun.sleep(20);
  expect(isStopped).toBe(false);
  ends[0]?.resolve(true);
  await stopping;
  await Bun.sleep(20);
  expect(begun).toHaveLength(1);
});
