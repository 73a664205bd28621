import { fail } from "../error.ts";

/**
 * How long work is retried after conflicts with other transactions. The last attempt may wait for a lock for 3 s, and
 * one more retry of both may follow: together less than the timeout of the limiter, which replaces all connections.
 */
export const RETRY_TIMEOUT_MS = 3_000;

/** Returned by an attempt if another write has changed the record since it was read. */
export const version_conflict = Symbol("version_conflict");

/**
 * Optimistic locking. An attempt reads the record and writes it if the version is unchanged. After a conflict
 * it starts again. In each round at least one of the concurrent writers succeeds.
 * @throws {AppError} unavailable if the conflicts last longer than the timeout
 */
export async function retryOnConflict<Result>(
  attempt: () => Promise<Result | typeof version_conflict>,
): Promise<Result> {
  const deadline_ms = performance.now() + RETRY_TIMEOUT_MS;
  for (;;) {
    const result = await attempt();
    if (result !== version_conflict) return result;
    if (performance.now() > deadline_ms) {
      fail("unavailable", "too much contention on this record, try again");
    }
  }
}
