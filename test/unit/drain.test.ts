import { expect, spyOn, test } from "bun:test";
import { createDrain } from "../../src/http/drain.ts";

/**
 * Drains while responses are sent every few milliseconds for `responding_ms`.
 * @returns how long the drain took, and how long there had been no response when it was complete
 */
async function drainWhile(responding_ms: number, timeout_ms: number) {
  const drain = createDrain();
  let responded_ms = performance.now();
  const responding = setInterval(() => {
    drain.headers();
    responded_ms = performance.now();
  }, 5);
  const timer = setTimeout(() => clearInterval(responding), responding_ms);
  try {
    const drained_ms = await drain.start(timeout_ms);
    return { drained_ms, quiet_ms: performance.now() - responded_ms };
  } finally {
    clearInterval(responding);
    clearTimeout(timer);
  }
}

test("`isDraining` is true when `start` was called", async () => {
  const drain = createDrain();
  expect(drain.isDraining()).toBe(false);
  const draining = drain.start(0);
  expect(drain.isDraining()).toBe(true);
  expect(drain.headers()).toEqual({ connection: "close" });
  await draining;
  expect(drain.isDraining()).toBe(true);
});

test("`start` waits until there was no response for 100 ms", async () => {
  expect(await createDrain().start(5_000)).toBeWithin(99, 2_000);
  const { drained_ms, quiet_ms } = await drainWhile(300, 5_000);
  // On a busy machine the responses themselves may be 100 ms apart.
  expect(quiet_ms).toBeGreaterThan(90);
  expect(drained_ms).toBeWithin(100, 2_000);
});

test("`start` waits no longer than its timeout when responses go on", async () => {
  const { drained_ms } = await drainWhile(5_000, 200);
  expect(drained_ms).toBeWithin(100, 2_000);
});

test("`start` waits two seconds at most when its timeout is longer", async () => {
  const real = performance.now.bind(performance);
  let passed_ms = 0;
  const clock = spyOn(performance, "now").mockImplementation(() => real() + passed_ms);
  const drain = createDrain();
  // The responses are never 100 ms apart.
  const responding = setInterval(() => {
    passed_ms += 50;
    drain.headers();
  }, 5);
  try {
    expect(await drain.start(30_000)).toBeWithin(2_000, 4_000);
  } finally {
    clearInterval(responding);
    clock.mockRestore();
  }
});
