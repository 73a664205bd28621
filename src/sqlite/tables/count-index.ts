/**
 * Exact totals in constant time, and pages at any offset for the cost of the first page. The ids of a list are
 * counted in buckets of consecutive ids. The counts change in the same transaction as the rows: triggers maintain
 * them (see the table `buckets`), and `bulk-insert.ts` does for imported rows.
 */
import type { Database } from "bun:sqlite";
import { type OrderStatus, orderStatuses } from "../../domain/order.ts";
import type { RecordTable } from "../../domain/record.ts";

/** Number of buckets within one bucket of the level above, and of ids within a bucket of level 0. */
export const FANOUT = 64;
const TOP_LEVEL = 2;
/** The level with a single bucket, which spans all ids. */
const TOTAL_LEVEL = 3;

/** The number of ids that a bucket of each level spans, as a power of two. */
export const levelBits = [6, 12, 18, 62];

/** Where a row is: it follows the first `skip` rows of the list from the id `first` on, within 64 ids. */
type Position = { readonly first: number; readonly skip: number };

export type CountedList = RecordTable | OrderStatus;

const countedStatuses = orderStatuses.filter((status) => status !== "pending");

/** The lists in the table `buckets`. That of a whole table counts the ids without a record. */
export const storedLists: readonly CountedList[] = ["users", "orders", ...countedStatuses];

export function tableOf(list: CountedList): RecordTable {
  return list === "users" ? "users" : "orders";
}

/** @returns a function that reads the last assigned id of a table; 0 if there is none */
export function prepareLastId(db: Database): (table: string) => number {
  const sequence = db.prepare<{ seq: number }, { table: string }>(`
    select seq
    from sqlite_sequence
    where name = $table
  `);
  return (table) => sequence.get({ table })?.seq ?? 0;
}

/** @param statuses empty for all records of the table. @param countRows from one id to another, both included */
export function createCountIndex(
  db: Database,
  table: RecordTable,
  statuses: readonly OrderStatus[],
  countRows: (first: number, last: number) => number,
) {
  const isWhole = statuses.length === 0;
  const isDense = isWhole || statuses.includes("pending");
  const others = countedStatuses.filter((status) => !isWhole && !statuses.includes(status));
  // A list that has nearly all ids of its table: the stored lists have the other ids.
  const lists = isDense ? [table, ...others] : statuses;
  const where = `list in (${lists.map((name) => `'${name}'`).join(", ")})`;
  // A sum of single counts takes as long as reading them.
  const [columns, group] =
    lists.length === 1 ? ["bucket, ids", ""] : ["bucket, sum(ids) as ids", "group by bucket"];
  const inRange = db.prepare<
    Record<"bucket" | "ids", number>,
    Record<"level" | "low" | "high", number>
  >(`
    select ${columns}
    from buckets
    where ${where} and level = +$level and bucket between $low and $high
    ${group}
    order by bucket
  `);
  const counted = () => inRange.get({ level: TOTAL_LEVEL, low: 0, high: 0 })?.ids ?? 0;
  const sum = `select sum(ids) as ids from buckets where ${where} and level = ${TOTAL_LEVEL} and bucket = 0`;
  // One statement, because each costs as much as reading a row.
  const total = db.prepare<{ ids: number | null }, []>(
    isDense
      ? `select seq - coalesce((${sum}), 0) as ids from sqlite_sequence where name = '${table}'`
      : sum,
  );

  // On each level the full buckets below the id that no bucket of the level above has.
  const levels = levelBits.slice(0, TOTAL_LEVEL).map((bits, level) => {
    const low = level === TOP_LEVEL ? "0" : `$id >> ${bits + 6} << 6`;
    const range = `level = ${level} and bucket >= ${low} and bucket < $id >> ${bits}`;
    return `select ids from buckets where ${where} and ${range}`;
  });
  const selects = levels.join(" union all ");
  const below = db.prepare<{ ids: number }, { id: number }>(`
    select coalesce(sum(ids), 0) as ids
    from (${selects})
  `);

  /** A missing bucket is full in a dense list, else empty. @returns the bucket of the row, and how many rows precede it there */
  function descend(level: number, parent: number, offset: number): [number, number] {
    const width = FANOUT ** (level + 1);
    const low = parent * FANOUT;
    const high = level === TOP_LEVEL ? Number.MAX_SAFE_INTEGER : low + FANOUT - 1;
    let next = low;
    let rest = offset;
    for (const { bucket, ids } of inRange.all({ level, low, high })) {
      const before = isDense ? (bucket - next) * width : 0;
      const within = isDense ? width - ids : ids;
      if (rest < before) break;
      rest -= before;
      if (rest < within) return [bucket, rest];
      rest -= within;
      next = bucket + 1;
    }
    return [next + Math.floor(rest / width), rest % width];
  }

  return {
    total: () => total.get()?.ids ?? 0,
    /** @returns the number of rows of the list up to an assigned id, included */
    rank(id: number): number {
      if (id === 0) return 0;
      const start = Math.floor(id / FANOUT) * FANOUT;
      const ids = below.get({ id })?.ids ?? 0;
      return (isDense ? start - ids : ids) + countRows(start + 1, id);
    },
    /** @param offset number of rows of the list before the row; less than the total */
    positionOf(offset: number): Position {
      if (isDense && counted() === 0) return { first: offset + 1, skip: 0 };
      let bucket = 0;
      let rest = offset;
      for (let level = TOP_LEVEL; level >= 0; level -= 1)
        [bucket, rest] = descend(level, bucket, rest);
      return { first: bucket * FANOUT + 1, skip: rest };
    },
  };
}
