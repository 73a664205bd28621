import { expect, test } from "bun:test";
import { AppError } from "../../../src/error.ts";
import { type Activity, createProblems } from "../../../src/sqlite/archive/problems.ts";

const activities: readonly Activity[] = ["opening", "segments", "base", "lease", "deletion"];

test.each(activities)("an archive whose %s fails has a problem if it needs it", (activity) => {
  const problems = createProblems(() => {});
  problems.report(activity, new AppError("unavailable", "no answer"));
  expect(problems.current()).toBe(activity === "deletion" ? null : "no answer");
  problems.clear(activity);
  expect(problems.current()).toBeNull();
});

test("the most important problem is the current one", () => {
  const problems = createProblems(() => {});
  problems.report("lease", new AppError("unavailable", "no lease"));
  problems.report("segments", new AppError("unavailable", "no segments"));
  expect(problems.current()).toBe("no segments");
  problems.clearRequired();
  expect(problems.current()).toBeNull();
});
