// When a start may seal the log of another server.

import { expect, test } from "bun:test";
import { patienceMs, untilStill } from "../../../src/sqlite/archive/read/still.ts";
import { createMemoryStorage } from "../../object-storage/memory.ts";
import { makeClock } from "./archived.ts";

const next = { generation: 1, number: 1 };
const { signal } = new AbortController();

test("a log is still when nothing was written for longer than the interval of heartbeats, in which no process slept", async () => {
  const storage = createMemoryStorage();
  // A look that takes time delays the end by no more than that.
  const clock = makeClock(() => clock.pass(30));
  await untilStill(storage, next, clock, signal);
  expect(clock.monotonicMs()).toBe(6_530);
  const suspended = makeClock(() => suspended.pass(3_600_000));
  await untilStill(storage, next, suspended, signal);
  expect(suspended.sleeps()).toBeGreaterThan(5);
});

test.each([
  [10_000, false, 5_000, 10_000],
  [10_000, true, 5_000, 20_000],
  [3_000, false, 5_000, 10_000],
  [3_000, true, 750, 6_000],
])(
  "a standby waits for TAKEOVER_SECONDS, after it was superseded twice as long, or for two heartbeats: %p",
  (takeoverMs, wasSuperseded, intervalMs, ms) => {
    expect(patienceMs({ takeoverMs, wasSuperseded }, intervalMs)).toBe(ms);
  },
);
