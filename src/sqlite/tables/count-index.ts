/**
 * Exact totals in constant time, and pages at any offset for the cost of the first page. The ids of a list are
 * counted in buckets of consecutive ids. The counts change in the same transaction as the rows: triggers maintain
 * them (see the table `buckets`), and `bulk-insert.ts` does for imported rows.
 */
import type { Database } from "bun:sqlite";
import { type OrderStatus, orderStatuses } from "../../domain/order.ts";
import { type JsonRow, maxId, type PageQuery, rowsToRead } from "../../domain/page.ts";
import type { RecordTable } from "../../domain/record.ts";
import type { ListRows } from "./records.ts";

/** Number of buckets within one bucket of the level above, and of ids within a bucket of level 0. */
const FANOUT = 64;
const TOP_LEVEL = 2;
/** The level with a single bucket, which spans all ids. */
const TOTAL_LEVEL = 3;

/** The number of ids that a bucket of each level spans, as a power of two. */
export const levelBits = [6, 12, 18, 62];

/** Where a page starts: after the id `after`, skipping `skip` rows of the list (fewer than 64). */
type PageStart = { readonly after: number; readonly skip: number };

export type CountedList = RecordTable | OrderStatus;

const countedStatuses = orderStatuses.filter((status) => status !== "pending");

/** `null` for all records. */
type Statuses = readonly OrderStatus[] | null;

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

/** @param statuses of the orders of the list; `null` for all records. */
function createCountIndex(db: Database, table: RecordTable, statuses: Statuses) {
  // Then the list has nearly all ids of the table, and those that it lacks are counted.
  const isDense = statuses === null || statuses.includes("pending");
  const others = countedStatuses.filter((status) => statuses?.includes(status) === false);
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
  const isTotal = `${where} and level = ${TOTAL_LEVEL} and bucket = 0`;
  const sequence = `(select seq from sqlite_sequence where name = '${table}') as sequence`;
  // One statement, because each costs as much as reading a row.
  const total = db.prepare<{ ids: number | null }, []>(
    isDense
      ? `select seq - coalesce(sum(ids), 0) as ids from ${sequence} left join buckets on ${isTotal}`
      : `select sum(ids) as ids from buckets where ${isTotal}`,
  );

  /**
   * A bucket that is not stored is full in a dense list, and empty in any other list.
   * @returns the bucket that contains the row, and the number of rows of the list in it before that row
   */
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
    /** @param offset number of rows of the list before the page; less than the total */
    pageStart(offset: number): PageStart {
      if (offset === 0) return { after: 0, skip: 0 };
      if (isDense && counted() === 0) return { after: offset, skip: 0 };
      let bucket = 0;
      let rest = offset;
      for (let level = TOP_LEVEL; level >= 0; level -= 1) {
        [bucket, rest] = descend(level, bucket, rest);
      }
      return { after: bucket * FANOUT, skip: rest };
    },
  };
}

/**
 * @param columns of a `JsonRow`, the first of which is the id
 * @param statuses of the orders of the list; `null` for all records
 */
export function prepareCountedList(
  db: Database,
  table: RecordTable,
  columns: string,
  statuses: Statuses,
): (query: PageQuery) => ListRows {
  const conditions = statuses?.map((status) => `status = '${status}' and`) ?? [""];
  // SQLite merges the parts in order. It would sort all rows of `status in (…)`.
  const select = (selected: string, range: string, order: string) =>
    conditions
      .map((condition) => `select ${selected} from ${table} where ${condition} ${range}`)
      .join("\nunion all ")
      .concat(`\norder by id ${order}`);
  const countIndex = createCountIndex(db, table, statuses);
  const ascending = db.prepare<JsonRow, PageStart & { limit: number }>(
    select(columns, "id > $after", "limit +$limit offset +$skip"),
  );
  const descending = db.prepare<JsonRow, Record<"last" | "limit", number>>(
    select(columns, "id <= $last", "desc limit +$limit"),
  );
  const idAt = db.prepare<{ id: number }, PageStart>(
    select("id", "id > $after", "limit 1 offset +$skip"),
  );

  function startAt(offset: number): PageStart {
    const start = countIndex.pageStart(offset);
    // A merge reads the columns of rows that it skips.
    if (conditions.length === 1 || start.skip === 0) return start;
    return { after: (idAt.get(start)?.id ?? 0) - 1, skip: 0 };
  }

  return (query) => {
    const { offset, after, sort } = query;
    const total = countIndex.total();
    const page = { limit: rowsToRead(query) };
    if (after === undefined && offset >= total) return { total, rows: [] };
    if (sort === "-id") {
      if (offset === 0) return { total, rows: descending.iterate({ ...page, last: maxId(query) }) };
      const first = countIndex.pageStart(total - 1 - offset);
      return { total, rows: descending.iterate({ ...page, last: idAt.get(first)?.id ?? 0 }) };
    }
    const start = after === undefined ? startAt(offset) : { after, skip: 0 };
    return { total, rows: ascending.iterate({ ...page, ...start }) };
  };
}
