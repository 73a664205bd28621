/**
 * Advisory locks on the ids of a table. A create holds the shared lock from the assignment of its id to the end of its
 * transaction. An import or a copy, which brings its own ids, holds the exclusive one. Both are on the coordinator:
 * a lock on the table would be taken on all servers.
 */
import type { RecordTable } from "../../record.ts";

/** First number of the locks; the second is that of the table. */
const ID_LOCK = 0x75616964;
/** Second number of advisory locks. */
export const tableNumbers: Readonly<Record<RecordTable, number>> = { users: 1, orders: 2 };

/**
 * @returns a statement that assigns the next `$1` numbers of the sequence, as `number`. From here to the end of the
 * transaction, `set local` applies to workers, too
 */
export function nextNumbers(table: RecordTable): string {
  // The columns are evaluated in this order.
  return `
    select pg_advisory_xact_lock_shared(${ID_LOCK}, ${tableNumbers[table]}),
      nextval('${table}_id_seq') as number,
      set_config('citus.propagate_set_commands', 'local', true)
    from generate_series(1, $1::integer)
  `;
}

/** @returns a statement that waits for creates in progress, and excludes others until the end of the transaction */
export function lockIds(table: RecordTable): string {
  return `select pg_advisory_xact_lock(${ID_LOCK}, ${tableNumbers[table]})`;
}
