import { expect, spyOn, test } from "bun:test";
import { createDrain } from "../../src/http/drain.ts";

/** Begins to drain, and answers every few milliseconds for as long as told. */
async function drainWhile(answering_ms: number, timeout_ms: number) {
  const drain = createDrain();
  const answering = setInterval(() => drain.headers(), 5);
  const timer = setTimeout(() => clearInterval(answering), answering_ms);
  try {
    return await drain.start(timeout_ms);
  } finally {
    clearInterval(answering);
    clearTimeout(timer);
  }
}

test("`createDrain` tells that it drains from `start` on", async () => {
  const drain = createDrain();
  expect(drain.isDraining()).toBe(false);
  const begun = drain.start(0);
  expect(drain.isDraining()).toBe(true);
  expect(drain.headers()).toEqual({ connection: "close" });
  await begun;
  expect(drain.isDraining()).toBe(true);
});

test("`start` waits until nobody was answered for a tenth of a second", async () => {
  expect(await createDrain().start(5_000)).toBeWithin(100, 400);
  expect(await drainWhile(300, 5_000)).toBeWithin(390, 900);
});

test("`start` waits no longer than its patience when clients go on asking", async () => {
  expect(await drainWhile(5_000, 200)).toBeWithin(200, 500);
});

test("`start` waits two seconds at most when its patience is longer", async () => {
  const real = performance.now.bind(performance);
  let passed_ms = 0;
  const clock = spyOn(performance, "now").mockImplementation(() => real() + passed_ms);
  const drain = createDrain();
  // Ever faster than it takes for a silence.
  const answering = setInterval(() => {
    passed_ms += 50;
    drain.headers();
  }, 5);
  try {
    expect(await drain.start(30_000)).toBeWithin(2_000, 2_400);
  } finally {
    clearInterval(answering);
    clock.mockRestore();
  }
});
