import { expect, spyOn, test } from "bun:test";
import { createDrain } from "../../src/http/limits/drain.ts";

test("drain closes connections and aborts its signal when it has started", async () => {
  const drain = createDrain();
  expect([drain.isDraining(), drain.signal.aborted]).toEqual([false, false]);
  const draining = drain.start(0);
  expect([drain.isDraining(), drain.signal.aborted]).toEqual([true, true]);
  expect(drain.countResponse()).toEqual({ connection: "close" });
  await draining;
  expect(drain.isDraining()).toBe(true);
});

test("responses close their connections until the last reason for it is gone", () => {
  const { closeConnections, closesConnections } = createDrain();
  for (const isOn of [true, true, false]) closeConnections(isOn);
  expect(closesConnections()).toBe(true);
  closeConnections(false);
  expect(closesConnections()).toBe(false);
});

/** `lastResponseMs`: until then a response is sent in each pause. `stallMs`: so long does the first pause take. */
const drains = [
  { ends: "100 ms after it started", when: "there is no response", lastResponseMs: 0, ms: 100 },
  { ends: "100 ms after the last response", when: "there are some", lastResponseMs: 300, ms: 400 },
  {
    ends: "90 ms after the first pause",
    when: "the first pause takes long",
    lastResponseMs: 0,
    stallMs: 500,
    ms: 590,
  },
  { ends: "at its timeout", when: "responses go on", timeoutMs: 200, ms: 200 },
  { ends: "after 2 s", when: "responses go on and its timeout is later", ms: 2_000 },
];

test.each(drains)(
  "drain ends $ends when $when",
  async ({ lastResponseMs = 60_000, timeoutMs = 30_000, stallMs = 0, ms }) => {
    const drain = createDrain();
    let passedMs = 0;
    using _clock = spyOn(performance, "now").mockImplementation(() => 60_000 + passedMs);
    using _sleep = spyOn(Bun, "sleep").mockImplementation(async (pauseMs) => {
      passedMs += passedMs === 0 ? Math.max(stallMs, Number(pauseMs)) : Number(pauseMs);
      if (passedMs <= lastResponseMs) drain.countResponse();
    });
    expect(await drain.start(timeoutMs)).toBe(ms);
  },
);
