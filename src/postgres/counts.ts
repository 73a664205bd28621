/**
 * Totals of lists. Triggers insert a row into `counts` for each statement that changes a total, and every process that
 * writes folds these rows into one now and then: it replaces them by their sum.
 */
import { type OrderStatus, orderStatuses } from "../order.ts";
import type { Database } from "./connection.ts";

/** How soon after a write its process folds. Totals read the rows of this time. */
const FOLD_INTERVAL_MS = 200;
/** Maximum number of rows that one transaction folds. */
const MAX_FOLDED = 10_000;
/** Key of the advisory lock, "uapc" in ASCII: one process folds at a time, and the others do not wait for it. */
export const FOLD_LOCK = 0x75617063;

/**
 * All rows, which is the same as those that the last sum does not replace: the others are deleted in the transaction
 * that inserts the sum. Deleted rows can stay for as long as any snapshot, and are not read.
 *
 * After a restore into another cluster, the numbers of its transactions can be lower than those in the sum, and rows with
 * them would be missing. The sum then was not inserted by the transaction that it names, and all rows are read. `xmin`
 * has only the lower 32 bits of a number.
 */
const currentCounts = `
  (
    select
      case when xmin::text::bigint = xid % 4294967296 then next_xid else 0 end as next_xid, running
    from counts
    where next_xid is not null
    order by xid desc
    limit 1
  ) as last_sum
  join counts on counts.xid >= last_sum.next_xid or counts.xid = any(last_sum.running)
`;

/** @returns a query for the sum of these columns of `counts` */
export function sumOfCounts(...columns: readonly ("users" | OrderStatus)[]): string {
  const records = columns.map((column) => `counts.${column}`).join(" + ");
  return `select coalesce(sum(${records}), 0) as records from ${currentCounts}`;
}

const countColumns = ["users", ...orderStatuses];

/**
 * Its parameter is the maximum number of rows. It deletes the oldest rows that its snapshot shows, and inserts their
 * sum. It must be the only statement of its transaction: a sum is found by its transaction, which is to begin after the
 * snapshot. Its commit waits for no standby and no disk, because a fold that is lost leaves the rows as they were.
 */
const fold = `
  with
    unfolded as materialized (
      select place, xid
      from (
        select counts.ctid as place, counts.xid
        from ${currentCounts}
        offset 0
      ) as row
      order by xid
      limit $1::integer + 1
    ),
    fold as materialized (
      select
        least(txid_snapshot_xmax(snapshot), (select xid from unfolded offset $1::integer)) as next_xid,
        array(select txid_snapshot_xip(snapshot)) as running
      from txid_current_snapshot() as snapshot
      where (select count(*) from unfolded) > 1
        and pg_try_advisory_xact_lock(${FOLD_LOCK})
        and set_config('synchronous_commit', 'off', true) = 'off'
    ),
    folded as (
      delete from counts
      where exists (select from fold)
        and ctid = any(array(select place from unfolded limit $1::integer))
      returning ${countColumns.join(", ")}
    )
  insert into counts (${countColumns.join(", ")}, next_xid, running)
  select ${countColumns.map((name) => `sum(${name})`).join(", ")}, next_xid, running
  from folded
  cross join fold
  group by next_xid, running
  returning (select count(*)::integer from folded) as rows
`;

/** @returns the number of rows that were folded: 0 if there are none, or if another process is folding */
export async function foldCounts(db: Database, maxRows = MAX_FOLDED): Promise<number> {
  // Not a write, because metrics count those, and because it is not to wait for writes that wait for locks.
  const row = await db.run("read", (session) => session.first<{ rows: number }>(fold, maxRows));
  return row?.rows ?? 0;
}

/** Folds after writes. */
export function foldAfterWrites(db: Database): void {
  /** Timer of a fold that is scheduled or running. */
  let timer: Timer | null = null;
  /** Whether there was a write since the last fold began. */
  let isDue = false;

  async function foldAll(): Promise<void> {
    isDue = false;
    try {
      while ((await foldCounts(db)) === MAX_FOLDED);
    } catch {
      // The rows are still there, and PostgreSQL has logged the error. The next write causes the next attempt.
    }
    timer = null;
    if (isDue) scheduleFold();
  }

  function scheduleFold(): void {
    isDue = true;
    timer ??= setTimeout(foldAll, FOLD_INTERVAL_MS);
  }

  db.onWrite(scheduleFold);
  db.closing.addEventListener("abort", () => {
    if (timer !== null) clearTimeout(timer);
  });
}
