import { fail } from "../base/error.ts";
import { readTime } from "../domain/config.ts";
import { roundUp } from "../domain/time.ts";

/** As given on the command line. */
export type Period = Partial<Readonly<Record<"from" | "to", string>>>;

/**
 * @returns the times in UTC with milliseconds, rounded up: a record is before a time, or not, as before
 * @throws {AppError} usage if one is not a time, or the first is not before the other
 */
export function readPeriod({ from, to }: Period) {
  const start = from === undefined ? undefined : readTime("--from", from);
  const end = to === undefined ? undefined : readTime("--to", to);
  if (start !== undefined && end !== undefined && start >= end)
    fail("usage", "--from must be before --to");
  // As text, before and after every time.
  return { start: start ? roundUp(start) : "", end: end ? roundUp(end) : "~" };
}
