/** Retries work that failed because of a concurrent transaction. */
import { AppError } from "../error.ts";
import { isRolledBack, toUnavailable } from "./errors.ts";

/** Maximum number of attempts of work that the server rolls back. */
const MAX_ATTEMPTS = 5;
/** The delay before a retry is random: at most this, multiplied by the attempts so far. */
const RETRY_DELAY_MS = 20;
/**
 * No attempt starts later than this. The last one may wait 3 s for a lock: together less than the timeout of the
 * limiter, which replaces all connections.
 */
const RETRY_TIMEOUT_MS = 3_000;

/**
 * Throw it if another write has changed a record since the work read it (optimistic locking). The work is repeated
 * without delay, and any number of times: in each round, one of the concurrent writers succeeds.
 */
export const version_conflict: AppError = new AppError(
  "unavailable",
  "too much contention on this record, try again",
);

/**
 * @param mayRetry whether the same work may succeed after an error
 * @throws {AppError} version_conflict, or unavailable, if the conflicts last longer than the timeout
 */
export async function withRetry<Result>(
  work: () => Promise<Result>,
  mayRetry = isRolledBack,
): Promise<Result> {
  const deadline_ms = performance.now() + RETRY_TIMEOUT_MS;
  for (let attempts = 1; ; attempts += 1) {
    try {
      return await work();
    } catch (error) {
      const is_late = performance.now() > deadline_ms;
      if (error === version_conflict && !is_late) continue;
      if (is_late || attempts === MAX_ATTEMPTS || !mayRetry(error)) throw toUnavailable(error);
      await Bun.sleep(Math.random() * RETRY_DELAY_MS * attempts);
    }
  }
}
