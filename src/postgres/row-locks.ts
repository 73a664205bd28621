/** Writes that wait for a row that another transaction has locked. */
import type { RecordTable } from "../record.ts";

/** A batch that waits longer fails, and each of its writes runs alone, with the lock timeout of the connection. */
export const BATCH_LOCK_TIMEOUT = "200ms";

/**
 * A condition that is true, and sets the lock timeout of the transaction before the statement locks a row.
 * @param timeout a parameter; if it is null, that of the connection stays
 */
export function withLockTimeout(timeout: string): string {
  return `(
            select set_config('lock_timeout', coalesce(${timeout}::text, current_setting('lock_timeout')), true)
          ) <> ''`;
}

/** Identifies the row of a record among those that writes wait for. */
export function recordName(table: RecordTable, id: number): string {
  return `${table} ${id}`;
}
