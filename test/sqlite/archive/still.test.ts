// When a start may seal the log of another server.

import { expect, test } from "bun:test";
import { heartbeatKey, slotKey } from "../../../src/sqlite/archive/keys.ts";
import { untilStill } from "../../../src/sqlite/archive/read/still.ts";
import { createLog, seal } from "../../../src/sqlite/archive/write/log.ts";
import { bytes } from "../../object-storage/contract.ts";
import { createMemoryStorage } from "../../object-storage/memory.ts";
import { makeClock } from "./archived.ts";

const next = { generation: 1, number: 1 };
const { signal } = new AbortController();

/** @param onSleep called with the time at each look @returns how long the log was waited for */
async function waitedMs(
  storage: ReturnType<typeof createMemoryStorage>,
  onSleep: (ms: number) => unknown,
): Promise<number> {
  const clock = makeClock(() => onSleep(clock.monotonicMs()));
  await untilStill(storage, next, clock, signal);
  return clock.monotonicMs();
}

test("a log is still when nothing was written for longer than the interval of heartbeats", async () => {
  const storage = createMemoryStorage();
  expect(await waitedMs(storage, () => {})).toBe(6_500);
  // A look that takes time delays the end by no more than that.
  const clock = makeClock(() => clock.pass(30));
  await untilStill(storage, next, clock, signal);
  expect(clock.monotonicMs()).toBe(6_530);
});

test("heartbeats and segments keep a start from taking over", async () => {
  const storage = createMemoryStorage();
  const beat = (ms: number) =>
    ms % 5_000 === 0 && ms <= 60_000 && storage.put(heartbeatKey(1), bytes(`${ms}`));
  expect(await waitedMs(storage, beat)).toBeWithin(66_000, 67_001);
});

test("a log that was closed or sealed is not waited for", async () => {
  const sealed = createMemoryStorage();
  const sealer = { writer: "other", holder: "other" };
  expect(await waitedMs(sealed, (ms) => ms === 2_000 && seal(sealed, next, sealer, 0))).toBe(2_000);
  const closed = createMemoryStorage();
  const generation = { number: 1, name: "own", holder: "own" };
  const retry = <Result>(attempt: () => Promise<Result>) => attempt();
  const log = createLog({ storage: closed, generation, retry, onSuperseded() {} });
  await log.close(0);
  expect(await waitedMs(closed, () => {})).toBe(0);
  expect(await closed.get(slotKey(next))).not.toBeNull();
});

test("the time in which a waiting process was suspended does not count", async () => {
  const storage = createMemoryStorage();
  const clock = makeClock(() => clock.pass(3_600_000));
  await untilStill(storage, next, clock, signal);
  expect(clock.sleeps()).toBeGreaterThan(5);
});
