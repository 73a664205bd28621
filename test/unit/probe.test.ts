import { expect, spyOn, test } from "bun:test";
import { AppError } from "../../src/error.ts";
import type { Writer } from "../../src/sqlite/commit.ts";
import { SCHEMA_VERSION } from "../../src/sqlite/migrate.ts";
import { createProbe } from "../../src/sqlite/probe.ts";
import { rejectionOf } from "../refusal.ts";
import { makeWriter } from "./writer.ts";

/** A probe whose clock stands until it is moved, over a writer that can be made to refuse. */
function makeProbe() {
  const made = makeWriter();
  const clock = { time_ms: 1_000_000 };
  const spy = spyOn(performance, "now").mockImplementation(() => clock.time_ms);
  const state = { writes: 0, refusing: false, full: false };
  const writer: Writer = {
    ...made.writer,
    isFull: () => state.full,
    write(work) {
      state.writes += 1;
      if (state.refusing) return Promise.reject(new AppError("unavailable", "the disk fails"));
      return made.writer.write(work);
    },
  };
  return {
    made,
    clock,
    state,
    probe: createProbe(made.db, writer),
    [Symbol.dispose]() {
      spy.mockRestore();
      made[Symbol.dispose]();
    },
  };
}

test("`createProbe` writes for real, and changes nothing, when asked", async () => {
  using it = makeProbe();
  it.made.db.run(`pragma user_version = ${SCHEMA_VERSION}`);
  await it.made.writer.write(() => it.made.insert(1));
  const before = it.made.commits();
  await it.probe();
  expect(it.made.commits()).toBe(before + 1);
  expect(it.made.db.query("pragma user_version").get()).toEqual({ user_version: SCHEMA_VERSION });
  expect(it.made.visible()).toEqual([1]);
});

test("`createProbe` writes once in 5 seconds when many ask", async () => {
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

test("`createProbe` tells a failure for a second, then tries again, when the disk refuses", async () => {
  using it = makeProbe();
  it.state.refusing = true;
  await rejectionOf(it.probe(), "unavailable");
  it.state.refusing = false;
  it.clock.time_ms += 999;
  await rejectionOf(it.probe(), "unavailable");
  expect(it.state.writes).toBe(1);
  it.clock.time_ms += 1;
  await it.probe();
  expect(it.state.writes).toBe(2);
  // A failure is noticed as soon as a success no longer counts.
  it.state.refusing = true;
  it.clock.time_ms += 5_000;
  await rejectionOf(it.probe(), "unavailable");
});

test("`createProbe` tells what it knew when too many writes wait", async () => {
  using it = makeProbe();
  await it.probe();
  it.state.full = true;
  it.clock.time_ms += 60_000;
  await it.probe();
  expect(it.state.writes).toBe(1);
});
