import { expect, spyOn, test } from "bun:test";
import { AppError } from "../../src/base/error.ts";
import { createWriteProbe } from "../../src/base/write-probe.ts";
import { expectRejection } from "../support/expect-error.ts";

function makeProbe() {
  const clock = { timeMs: 1_000_000 };
  const spy = spyOn(performance, "now").mockImplementation(() => clock.timeMs);
  const state = { writes: 0, failure: null as Error | null };
  const probe = createWriteProbe(async () => {
    state.writes += 1;
    if (state.failure !== null) throw state.failure;
  });
  return {
    clock,
    state,
    probe,
    [Symbol.dispose]: () => spy.mockRestore(),
  };
}

test("createWriteProbe writes once in 5 seconds for concurrent calls", async () => {
  using it = makeProbe();
  await Promise.all([it.probe(), it.probe(), it.probe()]);
  expect(it.state.writes).toBe(1);
  it.clock.timeMs += 4_999;
  await it.probe();
  expect(it.state.writes).toBe(1);
  it.clock.timeMs += 1;
  await it.probe();
  expect(it.state.writes).toBe(2);
});

test("createWriteProbe reports a failure for a second, and then tries again", async () => {
  using it = makeProbe();
  it.state.failure = new AppError("unavailable", "the disk fails");
  await expectRejection(it.probe(), "unavailable", /^the disk fails$/);
  it.state.failure = null;
  it.clock.timeMs += 999;
  await expectRejection(it.probe(), "unavailable");
  expect(it.state.writes).toBe(1);
  it.clock.timeMs += 1;
  await it.probe();
  expect(it.state.writes).toBe(2);
  // A failure is noticed as soon as the last success has expired.
  it.clock.timeMs += 5_000;
  // An error of any other kind makes the server unavailable as well. Clients do not see it.
  it.state.failure = new Error("no table user_api");
  const unusable = await expectRejection(
    it.probe(),
    "unavailable",
    /^the database cannot be used$/,
  );
  expect(unusable.cause).toBe(it.state.failure);
});
