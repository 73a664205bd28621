import { expect, test } from "bun:test";
import { startCleanUp } from "../../src/cli/clean-up.ts";
import { KEY_LIFETIME_MS } from "../../src/domain/idempotency.ts";

const DAY_MS = 24 * 60 * 60 * 1000;

test("the cleanup begins again when the last one has ended, also if it has failed, and immediately if more is left, until it is stopped", async () => {
  const nowMs = Date.parse("2026-11-26T00:00:00.000Z");
  let hours = 0;
  let pass = () => {};
  const clock = {
    nowMs: () => nowMs,
    monotonicMs: () => 3_600_000 * hours++,
    sleep: async () => {},
    every(_ms: number, work: () => void) {
      pass = work;
      return {
        [Symbol.dispose]() {
          pass = () => {};
        },
      };
    },
  };
  async function passTwice(): Promise<void> {
    for (let times = 0; times < 2; times += 1) {
      pass();
      await Bun.sleep(0);
    }
  }
  const begun: Date[] = [];
  const keysBefore: Date[] = [];
  // The deletion of changes ends when the test says so, and whether more are left.
  const ends: PromiseWithResolvers<boolean>[] = [];
  const warnings: unknown[] = [];
  const store = {
    async deleteExpiredKeys(before: Date) {
      keysBefore.push(before);
      return false;
    },
    changes: {
      deleteExpired(before: Date) {
        const end = Promise.withResolvers<boolean>();
        begun.push(before);
        ends.push(end);
        return end.promise;
      },
    },
    isPrimary: () => true,
  };
  const warn = (_event: string, fields?: object) => void warnings.push(fields);
  const cleanUp = startCleanUp(() => store as never, 30 * DAY_MS, { warn }, clock);
  await passTwice();
  expect(begun).toHaveLength(1);
  ends[0]?.reject(new Error("on purpose"));
  await passTwice();
  expect(begun).toHaveLength(2);
  expect(warnings).toEqual([{ reason: "on purpose" }]);
  ends[1]?.resolve(true);
  await passTwice();
  let isStopped = false;
  const stopping = cleanUp[Symbol.asyncDispose]().then(() => {
    isStopped = true;
  });
  await passTwice();
  expect(isStopped).toBe(false);
  ends[2]?.resolve(true);
  await stopping;
  await passTwice();
  expect(begun).toHaveLength(3);
  // By the first look at a clock, nothing is old enough.
  expect([begun[0], keysBefore[0]].map(Number)).toEqual([-30 * DAY_MS, -KEY_LIFETIME_MS]);
  expect(begun.slice(1)).toEqual(Array(2).fill(new Date("2026-10-27T00:00:00.000Z")));
  expect(keysBefore.slice(1)).toEqual([new Date("2026-11-25T00:00:00.000Z")]);
});
