import { expect, test } from "bun:test";
import { systemClock } from "../../../src/base/clock.ts";
import { AppError } from "../../../src/base/error.ts";
import { createProblems } from "../../../src/sqlite/archive/problems.ts";

test("the most important problem of what an archive needs is the current one", () => {
  const problems = createProblems(() => {}, systemClock);
  for (const [activity, current] of [
    ["deletion", null],
    ["heartbeat", null],
    ["base", "base"],
    ["segments", "segments"],
    ["opening", "opening"],
  ] as const) {
    problems.report(activity, new AppError("unavailable", activity));
    expect(problems.current()).toBe(current);
  }
  problems.clear("opening");
  expect(problems.current()).toBe("segments");
  problems.clearRequired();
  expect(problems.current()).toBeNull();
});

test("what a server waits for has nothing of what only the log may say", () => {
  const waits: unknown[] = [];
  const problems = createProblems(
    () => {},
    systemClock,
    (what) => waits.push(what),
  );
  problems.report("following", new AppError("unavailable", "s3://bucket is away"));
  problems.report("following", new AppError("unavailable", "waiting for a command"));
  problems.report("following", new Error("EIO"));
  for (let clears = 0; clears < 2; clears += 1) problems.clear("following");
  expect(waits).toEqual(["the storage of the archive", "a command", "its disk", null]);
});

test("a server waits for what still fails when something else works again", () => {
  const waits: unknown[] = [];
  const problems = createProblems(
    () => {},
    systemClock,
    (what) => waits.push(what),
  );
  problems.report("reading", new Error("EIO"));
  problems.report("heartbeat", new AppError("unavailable", "no answer"));
  problems.clear("heartbeat");
  problems.clear("reading");
  expect(waits).toEqual(["its disk", "the storage of the archive", "its disk", null]);
});

test("a failure is logged at most once a minute, and so is that it is over", () => {
  const lines: string[] = [];
  let nowMs = 100_000;
  const clock = { ...systemClock, monotonicMs: () => nowMs };
  const problems = createProblems((_level, event) => void lines.push(event), clock);
  for (let second = 0; second <= 60; second += 1) {
    problems.report("segments", new AppError("unavailable", "no answer"));
    problems.clear("segments");
    nowMs += 1_000;
  }
  const outage = ["archive not written", "archive written again"];
  expect(lines).toEqual([...outage, ...outage]);
});
