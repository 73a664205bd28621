/**
 * Exact totals in constant time, and pages at any offset for the cost of the first page. The ids of a list are
 * counted in buckets of consecutive ids. The counts change in the same transaction as the rows: triggers maintain
 * them (see the table `buckets`), and `count-index.import.ts` does for imported rows.
 */
import type { Database } from "bun:sqlite";

/** A bucket spans 64 buckets of the level below; a bucket of level 0 spans 64 ids. */
export const FANOUT_BITS = 6;
const FANOUT = 1 << FANOUT_BITS;
export const TOP_LEVEL = 2;
/** The level with a single bucket, which spans all ids. */
export const TOTAL_LEVEL = 3;

interface Bucket {
  readonly bucket: number;
  readonly ids: number;
}

/** Where a page starts: after the id `after`, skipping `skip` rows of the list (fewer than 64). */
export type PageStart = { readonly after: number; readonly skip: number };

export interface CountedList {
  total(): number;
  /** @param offset number of rows of the list before the page; less than the total */
  pageStart(offset: number): PageStart;
}

export type CountedTable = "users" | "orders";

/** The lists that count their missing ids, out of all ids that the table has ever assigned. */
export const dense_lists = { users: "users", orders: "orders", pending: "orders" } as const;
export type DenseList = keyof typeof dense_lists;

export interface CountIndex {
  /** A list whose ids are counted: the orders in any status except `pending`. */
  sparse(list: string): CountedList;
  /** A list whose missing ids are counted: a whole table, or the `pending` orders. */
  dense(list: DenseList): CountedList;
}

/** @returns how many ids a bucket of this level spans */
export function widthOf(level: number): number {
  return FANOUT ** (level + 1);
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

export function createCountIndex(db: Database): CountIndex {
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
  const lastId = prepareLastId(db);

  const totalOf = (list: string) => inAll.get({ list })?.ids ?? 0;

  /** @returns the stored buckets within one bucket of the level above */
  function childBuckets(list: string, level: number, parent: number): Bucket[] {
    const low = parent * FANOUT;
    const high = level === TOP_LEVEL ? Number.MAX_SAFE_INTEGER : low + FANOUT - 1;
    return inRange.all({ list, level, low, high });
  }

  /** @returns the bucket of a dense list that contains the row, and the number of its rows before that row */
  function descend(list: string, level: number, parent: number, offset: number): [number, number] {
    const width = widthOf(level);
    let next = parent * FANOUT;
    let rest = offset;
    for (const { bucket, ids: missing } of childBuckets(list, level, parent)) {
      const whole = (bucket - next) * width;
      if (rest < whole) break;
      rest -= whole;
      if (rest < width - missing) return [bucket, rest];
      rest -= width - missing;
      next = bucket + 1;
    }
    return [next + Math.floor(rest / width), rest % width];
  }

  return {
    sparse: (list) => ({
      total: () => totalOf(list),
      pageStart(offset) {
        let parent = 0;
        let rest = offset;
        for (let level = TOP_LEVEL; level >= 0; level -= 1) {
          for (const { bucket, ids } of childBuckets(list, level, parent)) {
            parent = bucket;
            if (rest < ids) break;
            rest -= ids;
          }
        }
        return { after: parent * FANOUT, skip: rest };
      },
    }),

    dense: (list) => ({
      total: () => lastId(dense_lists[list]) - totalOf(list),
      pageStart(offset) {
        if (totalOf(list) === 0) return { after: offset, skip: 0 };
        let parent = 0;
        let rest = offset;
        for (let level = TOP_LEVEL; level >= 0; level -= 1) {
          [parent, rest] = descend(list, level, parent, rest);
        }
        return { after: parent * FANOUT, skip: rest };
      },
    }),
  };
}
