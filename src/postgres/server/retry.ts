import { AppError } from "../../base/error.ts";
import { isRolledBack, orderMissing, toUnavailable } from "./errors.ts";

const MAX_ATTEMPTS = 5;
/** The delay before a retry is random: at most this, multiplied by the rollbacks so far. */
const RETRY_DELAY_MS = 20;
/** No retry begins after it. With an attempt as long as the statement timeout, it must stay below the timeout of work. */
const RETRY_TIMEOUT_MS = 3_000;

/**
 * Thrown by work that must run again: since it read a record or an idempotency key, another write has changed or claimed it
 * (optimistic locking). The work is repeated immediately, until the timeout: in each round, one of the concurrent writers
 * succeeds. As the outcome of one write of a batch, also of one that must not share it, it makes this write run alone.
 */
export const runAgain: AppError = new AppError(
  "unavailable",
  "too much contention on this record, try again",
);

/** @throws {AppError} runAgain, or unavailable, if the conflicts last longer than the timeout */
export async function withRetry<Result>(
  work: () => Promise<Result>,
  mayRetry = isRolledBack,
  timeoutMs = RETRY_TIMEOUT_MS,
  onError?: (error: unknown) => void,
): Promise<Result> {
  const deadlineMs = performance.now() + timeoutMs;
  let rollbacks = 0;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      const isLate = performance.now() > deadlineMs;
      if (error === runAgain && !isLate) continue;
      onError?.(error);
      rollbacks += 1;
      if (isLate || rollbacks === MAX_ATTEMPTS || !(error === orderMissing || mayRetry(error)))
        throw toUnavailable(error);
      await Bun.sleep(Math.random() * RETRY_DELAY_MS * rollbacks);
    }
  }
}
