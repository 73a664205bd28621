/** Writes that wait for a row that another transaction has locked. */
import { createOrderedQueue, type RunInOrder } from "./batch.ts";

/** If a statement waits longer than this for a row, its writes run again, apart from those that need other rows. */
export const ROW_LOCK_TIMEOUT = "200ms";
/** Maximum number of locked rows that writes wait for at the same time, each on a connection. */
const MAX_LOCKED = 2;

/** @returns the queue of writes that wait for locked rows, which all tables share. Its keys identify the rows */
export function createLockedQueue(): RunInOrder {
  return createOrderedQueue(MAX_LOCKED);
}

/**
 * A condition that is true, and sets the lock timeout of the transaction before the statement locks a row.
 * @param timeout an expression
 */
export function withLockTimeout(timeout: string): string {
  return `(select set_config('lock_timeout', ${timeout}, true)) <> ''`;
}

/**
 * How long a statement waits for a locked row: `brief` is `ROW_LOCK_TIMEOUT`, `long` the lock timeout of the connection.
 */
export type LockWait = "brief" | "long";

/**
 * A column: whether another transaction has locked the row, or did so before it ended. PostgreSQL does not clear `xmax`
 * then.
 */
export const lockedColumn = "xmax <> 0 as locked";

/**
 * @param locked the column, as the row was read before its change
 * @returns the wait of the change. Setting the timeout takes a tenth of the statement, and a free row is hardly locked
 * within the next millisecond
 */
export function waitFor(locked: boolean, wait: LockWait): LockWait {
  return locked ? wait : "long";
}

/** @param render returns a statement with a condition. @returns the statement for each wait */
export function lockingStatement(render: (condition: string) => string): Record<LockWait, string> {
  return { brief: render(withLockTimeout(`'${ROW_LOCK_TIMEOUT}'`)), long: render("true") };
}
