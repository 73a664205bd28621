import { expect, spyOn, test } from "bun:test";
import { AppError } from "../../../src/base/error.ts";
import { type Activity, createProblems } from "../../../src/sqlite/archive/problems.ts";

const activities: readonly Activity[] = ["opening", "segments", "base", "heartbeat", "deletion"];

test.each(activities)("an archive whose %s fails has a problem if it needs it", (activity) => {
  const problems = createProblems(() => {});
  problems.report(activity, new AppError("unavailable", "no answer"));
  const isNeeded = activity !== "deletion" && activity !== "heartbeat";
  expect(problems.current()).toBe(isNeeded ? "no answer" : null);
  problems.clear(activity);
  expect(problems.current()).toBeNull();
});

test("the most important problem is the current one", () => {
  const problems = createProblems(() => {});
  problems.report("base", new AppError("unavailable", "no base"));
  problems.report("segments", new AppError("unavailable", "no segments"));
  expect(problems.current()).toBe("no segments");
  problems.clearRequired();
  expect(problems.current()).toBeNull();
});

test("a second outage has a line when it lasts for 5 s, and one that is over before has none", () => {
  const lines: string[] = [];
  let nowMs = 100_000;
  using _clock = spyOn(performance, "now").mockImplementation(() => nowMs);
  const problems = createProblems((_level, event) => void lines.push(event));
  const fail = (ms: number) => {
    nowMs += ms;
    problems.report("segments", new AppError("unavailable", "no answer"));
  };
  for (let outage = 0; outage < 5; outage += 1) {
    fail(0);
    fail(4_000);
    problems.clear("segments");
  }
  expect(lines).toEqual(["archive not written", "archive written again"]);
  for (const ms of [0, 3_000, 3_000, 3_000]) fail(ms);
  problems.clear("segments");
  expect(lines.slice(2)).toEqual(["archive not written", "archive written again"]);
});
