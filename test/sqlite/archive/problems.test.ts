import { expect, test } from "bun:test";
import { AppError } from "../../../src/base/error.ts";
import { createProblems } from "../../../src/sqlite/archive/problems.ts";
import { makeClock } from "./archived.ts";

const unavailable = (message: string) => new AppError("unavailable", message);

function makeProblems() {
  const lines: string[] = [];
  const waits: (string | null)[] = [];
  const clock = makeClock();
  const log = (_level: string, event: string) => void lines.push(event);
  const problems = createProblems(log, clock, (what) => void waits.push(what));
  return { ...problems, clock, lines, waits };
}

test("the most important problem of what an archive needs is the current one", () => {
  const problems = makeProblems();
  for (const [activity, current] of [
    ["deletion", null],
    ["heartbeat", null],
    ["base", "base"],
    ["segments", "segments"],
    ["opening", "opening"],
  ] as const) {
    problems.report(activity, unavailable(activity));
    expect(problems.current()).toBe(current);
  }
  problems.clear("opening");
  expect(problems.current()).toBe("segments");
  problems.clearRequired();
  expect(problems.current()).toBeNull();
});

test("a server waits for what still fails, and says nothing of what only the log may say", () => {
  const problems = makeProblems();
  problems.report("following", unavailable("s3://bucket is away"));
  problems.report("following", unavailable("waiting for a command"));
  problems.report("following", new Error("EIO"));
  problems.report("heartbeat", unavailable("no answer"));
  problems.clear("heartbeat");
  for (let clears = 0; clears < 2; clears += 1) problems.clear("following");
  const [storage, disk] = ["the storage of the archive", "its disk"];
  expect(problems.waits).toEqual([storage, "a command", disk, storage, disk, null]);
});

test("a failure is logged at most once a minute, and so is that it is over", () => {
  const problems = makeProblems();
  for (let second = 0; second <= 60; second += 1) {
    problems.report("segments", unavailable("no answer"));
    problems.clear("segments");
    problems.clock.pass(1_000);
  }
  const outage = ["archive not written", "archive written again"];
  expect(problems.lines).toEqual([...outage, ...outage]);
});
