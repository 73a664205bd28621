/**
 * Exact totals in constant time, and pages at any offset for the cost of the first page. The ids of a list are
 * counted in buckets of consecutive ids. The counts change in the same transaction as the rows: triggers maintain
 * them (see the table `buckets`), and `id-tracker.ts` does for imported rows.
 */
import type { Database } from "bun:sqlite";
import type { OrderStatus } from "../../domain/order.ts";
import type { RecordTable } from "../../domain/record.ts";

/** Number of buckets within one bucket of the level above, and of ids within a bucket of level 0. */
const FANOUT = 64;
const TOP_LEVEL = 2;
/** The level with a single bucket, which spans all ids. */
const TOTAL_LEVEL = 3;

/** The number of ids that a bucket of each level spans, as a power of two. */
export const levelBits = [6, 12, 18, 62];

interface Bucket {
  readonly bucket: number;
  readonly ids: number;
}

/** Where a page starts: after the id `after`, skipping `skip` rows of the list (fewer than 64). */
export type PageStart = { readonly after: number; readonly skip: number };

/** A whole table, or the orders in one status. */
export type CountedList = RecordTable | OrderStatus;

/** The lists that count their missing ids, out of all ids that the table has ever assigned. Others count their ids. */
export const denseLists: Readonly<Partial<Record<CountedList, RecordTable>>> = {
  users: "users",
  orders: "orders",
  pending: "orders",
};

/** @returns a function that reads the last assigned id of a table; 0 if there is none */
export function prepareLastId(db: Database): (table: string) => number {
  const sequence = db.prepare<{ seq: number }, { table: string }>(`
    select seq
    from sqlite_sequence
    where name = $table
  `);
  return (table) => sequence.get({ table })?.seq ?? 0;
}

export function createCountIndex(db: Database) {
  const inRange = db.prepare<Bucket, { list: string; level: number; low: number; high: number }>(`
    select bucket, ids
    from buckets
    where list = +$list and level = +$level and bucket between $low and $high
    order by bucket
  `);
  const inAll = db.prepare<{ ids: number }, { list: string }>(`
    select ids
    from buckets
    where list = $list and level = ${TOTAL_LEVEL} and bucket = 0
  `);
  const inTable = db.prepare<{ ids: number }, { list: string; table: string }>(`
    select seq - coalesce((
      select ids
      from buckets
      where list = $list and level = ${TOTAL_LEVEL} and bucket = 0
    ), 0) as ids
    from sqlite_sequence
    where name = $table
  `);

  const countOf = (list: CountedList) => inAll.get({ list })?.ids ?? 0;

  /** @returns the stored buckets within one bucket of the level above */
  function childBuckets(list: CountedList, level: number, parent: number): Bucket[] {
    const low = parent * FANOUT;
    const high = level === TOP_LEVEL ? Number.MAX_SAFE_INTEGER : low + FANOUT - 1;
    return inRange.all({ list, level, low, high });
  }

  /**
   * A bucket that is not stored is full in a dense list, and empty in any other list.
   * @returns the bucket that contains the row, and the number of rows of the list in it before that row
   */
  function descend(
    list: CountedList,
    level: number,
    parent: number,
    offset: number,
  ): [number, number] {
    const isDense = denseLists[list] !== undefined;
    const width = FANOUT ** (level + 1);
    let next = parent * FANOUT;
    let rest = offset;
    for (const { bucket, ids } of childBuckets(list, level, parent)) {
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
    total(list: CountedList): number {
      const table = denseLists[list];
      return table === undefined ? countOf(list) : (inTable.get({ list, table })?.ids ?? 0);
    },
    /** @param offset number of rows of the list before the page; less than the total */
    pageStart(list: CountedList, offset: number): PageStart {
      if (offset === 0) return { after: 0, skip: 0 };
      if (denseLists[list] !== undefined && countOf(list) === 0) return { after: offset, skip: 0 };
      let bucket = 0;
      let rest = offset;
      for (let level = TOP_LEVEL; level >= 0; level -= 1) {
        [bucket, rest] = descend(list, level, bucket, rest);
      }
      return { after: bucket * FANOUT, skip: rest };
    },
  };
}
