/** Writes that wait for a row that another transaction has locked. */
import { createFairQueue, type RunFairly } from "../fair-queue.ts";
import type { RecordTable } from "../record.ts";
import { QUEUE_TIMEOUT_MS } from "./limiter.ts";

/** If a statement waits longer than this for a row, its writes run again, apart from those that need other rows. */
export const ROW_LOCK_TIMEOUT = "200ms";

/**
 * A condition that is true, and sets the lock timeout of the transaction before the statement locks a row.
 * @param timeout an expression
 */
export function withLockTimeout(timeout: string): string {
  return `(select set_config('lock_timeout', ${timeout}, true)) <> ''`;
}

/**
 * How long a statement waits for a locked row: `none` writes the other rows only, `brief` is `ROW_LOCK_TIMEOUT`, and
 * `long` is the lock timeout of the connection.
 */
export type LockWait = "none" | "brief" | "long";

/** Identifies the row of a record among those that writes wait for. */
export function recordName(table: RecordTable, id: number): string {
  return `${table} ${id}`;
}

/**
 * @param maxRunning maximum number of pieces of work that run at the same time
 * @returns a function that runs the work of one row in the order in which it came. Rows take turns
 */
export function createRowQueue(maxRunning: number): RunFairly {
  return createFairQueue({
    maxRunning,
    maxRunningOfClient: 1,
    queueTimeoutMs: QUEUE_TIMEOUT_MS,
    problem: "the database is busy",
  });
}
