import { expect, spyOn, test } from "bun:test";
import { connectionsOf } from "../../src/http/connections/connections.ts";
import { createDrain } from "../../src/http/connections/drain.ts";

test("responses close their connections until the last reason for it is gone, and when the server drains", () => {
  const drain = createDrain();
  const state = () => [drain.closesConnections(), drain.isDraining(), drain.signal.aborted];
  for (const isOn of [true, true, false]) drain.closeConnections(isOn);
  expect(state()).toEqual([true, false, false]);
  drain.closeConnections(false);
  expect(state()).toEqual([false, false, false]);
  void drain.start(0);
  expect(state()).toEqual([true, true, true]);
  expect(drain.countResponse()).toEqual({ connection: "close" });
});

/** When it ends, until when a response is sent in each pause, its timeout, how long the first pause takes, in ms. */
test.each([
  ["100 ms after it started, when there is no response", 100, 0, 30_000, 0],
  ["100 ms after the last response", 400, 300, 30_000, 0],
  ["90 ms after the first pause, when that takes long", 590, 0, 30_000, 500],
  ["at its timeout, when responses go on", 200, 60_000, 200, 0],
  ["after 2 s, when responses go on and its timeout is later", 2_000, 60_000, 30_000, 0],
])("drain ends %s", async (_when, ms, lastResponseMs, timeoutMs, stallMs) => {
  const drain = createDrain();
  let passedMs = 0;
  using _clock = spyOn(performance, "now").mockImplementation(() => 60_000 + passedMs);
  using _sleep = spyOn(Bun, "sleep").mockImplementation(async (pauseMs) => {
    passedMs += passedMs === 0 ? Math.max(stallMs, Number(pauseMs)) : Number(pauseMs);
    if (passedMs <= lastResponseMs) drain.countResponse();
  });
  expect(await drain.start(timeoutMs)).toBe(ms);
});

test("a server that stops waits for requests whose clients have disconnected", async () => {
  const { pending, untilIdle } = connectionsOf(new Set());
  pending.add(new Request("http://localhost"));
  let passedMs = 0;
  using _clock = spyOn(performance, "now").mockImplementation(() => 60_000 + passedMs);
  using _sleep = spyOn(Bun, "sleep").mockImplementation(async (pauseMs) => {
    passedMs += Number(pauseMs);
    if (passedMs === 5_000) pending.clear();
  });
  await untilIdle(30_000);
  expect(passedMs).toBe(5_000);
});
