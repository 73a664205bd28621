import { fail } from "../error.ts";

/** How long a change is tried while others come between. */
const RETRY_TIMEOUT_MS = 5_000;

/** Another has changed the record since it was read. */
export const version_conflict = Symbol("overtaken");

/**
 * Runs what reads a record and then changes that very version of it, from the start each time another
 * was faster. In each round one of them wins.
 * @throws {AppError} unavailable when others are faster all the time
 */
export async function retryOnConflict<Result>(
  attempt: () => Promise<Result | typeof version_conflict>,
): Promise<Result> {
  const deadline_ms = performance.now() + RETRY_TIMEOUT_MS;
  for (;;) {
    const result = await attempt();
    if (result !== version_conflict) return result;
    if (performance.now() > deadline_ms) fail("unavailable", "too many change the same record");
  }
}
