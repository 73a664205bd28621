import { fail } from "../base/error.ts";
import { readTime } from "../domain/config.ts";
import { roundUp } from "../domain/time.ts";

export type Period = Partial<Readonly<Record<"from" | "to", string>>>;

/** @returns times in UTC with milliseconds, rounded up. @throws {AppError} usage if one is no time, or `to` is not later */
export function readPeriod({ from, to }: Period) {
  const start = from === undefined ? undefined : readTime("--from", from);
  const end = to === undefined ? undefined : readTime("--to", to);
  if (start !== undefined && end !== undefined && start >= end)
    fail("usage", "--from must be before --to");
  // As text, before and after every time.
  return { start: start ? roundUp(start) : "", end: end ? roundUp(end) : "~" };
}
