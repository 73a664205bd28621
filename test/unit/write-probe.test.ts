import { expect, spyOn, test } from "bun:test";
import { AppError } from "../../src/error.ts";
import { createWriteProbe } from "../../src/write-probe.ts";
import { expectRejection } from "../expect-error.ts";

/** A probe whose clock stands until it is moved, over a database that can be made to refuse. */
function makeProbe() {
  const clock = { time_ms: 1_000_000 };
  const spy = spyOn(performance, "now").mockImplementation(() => clock.time_ms);
  const state = { writes: 0, refusing: false, full: false };
  const probe = createWriteProbe({
    isFull: () => state.full,
    async write() {
      state.writes += 1;
      if (state.refusing) throw new AppError("unavailable", "the disk fails");
    },
  });
  return {
    clock,
    state,
    probe,
    [Symbol.dispose]: () => spy.mockRestore(),
  };
}

test("`createWriteProbe` writes once in 5 seconds when many ask", async () => {
  using it = makeProbe();
  await Promise.all([it.probe(), it.probe(), it.probe()]);
  expect(it.state.writes).toBe(1);
  it.clock.time_ms += 4_999;
  await it.probe();
  expect(it.state.writes).toBe(1);
  it.clock.time_ms += 1;
  await it.probe();
  expect(it.state.writes).toBe(2);
});

test("`createWriteProbe` tells a failure for a second, then tries again, when the disk refuses", async () => {
  using it = makeProbe();
  it.state.refusing = true;
  await expectRejection(it.probe(), "unavailable");
  it.state.refusing = false;
  it.clock.time_ms += 999;
  await expectRejection(it.probe(), "unavailable");
  expect(it.state.writes).toBe(1);
  it.clock.time_ms += 1;
  await it.probe();
  expect(it.state.writes).toBe(2);
  // A failure is noticed as soon as a success no longer counts.
  it.state.refusing = true;
  it.clock.time_ms += 5_000;
  await expectRejection(it.probe(), "unavailable");
});

test("`createWriteProbe` tells what it knew when too many writes wait", async () => {
  using it = makeProbe();
  await it.probe();
  it.state.full = true;
  it.clock.time_ms += 60_000;
  await it.probe();
  expect(it.state.writes).toBe(1);
});
