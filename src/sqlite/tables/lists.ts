/** Pages and totals of all lists of users and orders, but those that a unique column selects. */
import type { Database } from "bun:sqlite";
import type { OrderStatus } from "../../domain/order.ts";
import { type JsonRow, maxId, type PageQuery, rowsToRead } from "../../domain/page.ts";
import type { RecordTable } from "../../domain/record.ts";
import { createCountIndex, FANOUT } from "./count-index.ts";
import type { ListRows } from "./records.ts";

interface List {
  readonly table: RecordTable;
  readonly ofUser: boolean;
  /** Empty for all. */
  readonly statuses: readonly OrderStatus[];
}

/** Ids from `first` to `last`, both included. */
export interface IdRange {
  readonly first: number;
  readonly last: number;
  /** Whether all of their records match the times. Otherwise each is compared. */
  readonly isExact: boolean;
}

type Start = Pick<IdRange, "first" | "last"> & { readonly skip: number };
/** `user_id` of a list of a user, and the times `from` and `to` of ranges that are not exact. */
type Values = Readonly<Record<string, string | number>>;

const allIds: readonly IdRange[] = [{ first: 1, last: Number.MAX_SAFE_INTEGER, isExact: true }];

/** Up to this many ids, counting the rows takes less time than two sums of counts. */
const FEW_IDS = 512;

function prepareStatements(db: Database, columns: string, list: List, isTimed: boolean) {
  const { table, ofUser, statuses } = list;
  const isByStatus = statuses.length > 0 && !ofUser && !isTimed;
  const names = statuses.map((status) => `'${status}'`);
  const ids = "id >= $first and id <= $last";
  const conditions = [
    ...(ofUser ? ["user_id = +$user_id"] : []),
    ...(statuses.length > 0 ? [`${isByStatus ? "" : "+"}status in (${names.join(", ")})`] : []),
    ...(isTimed ? ["created_at >= +$from and created_at < +$to"] : []),
    ids,
  ];
  const where = conditions.join(" and ");
  // With `in`, SQLite would sort the rows of several statuses. It merges those of several queries.
  const wheres = isByStatus ? names.map((name) => `status = ${name} and ${ids}`) : [where];
  const selects = wheres
    .map((each) => `select ${columns} from ${table} where ${each}`)
    .join("\n union all ");
  const inOrder = (direction: "asc" | "desc") =>
    db.prepare<JsonRow, Values>(`
      ${selects}
      order by id ${direction}
      limit +$limit offset +$skip
    `);
  return {
    count: db.prepare<{ rows: number }, Values>(`
      select count(*) as rows
      from ${table}
      where ${where}
    `),
    ascending: inOrder("asc"),
    descending: inOrder("desc"),
  };
}

/** @param columns of a `JsonRow`, the first of which is the id */
export function prepareList(db: Database, columns: string, list: List) {
  const exact = prepareStatements(db, columns, list, false);
  const timed = prepareStatements(db, columns, list, true);
  const countRows = (first: number, last: number) => exact.count.get({ first, last })?.rows ?? 0;
  const index = list.ofUser ? null : createCountIndex(db, list.table, list.statuses, countRows);

  /** @returns the count index if the rows of the range are not read one by one */
  function indexFor({ first, last, isExact }: IdRange) {
    return isExact && last - first >= FEW_IDS ? index : null;
  }

  function count(range: IdRange, values: Values): number {
    const { first, last, isExact } = range;
    const { count } = isExact ? exact : timed;
    const counts = indexFor(range);
    if (counts === null) return count.get({ ...values, first, last })?.rows ?? 0;
    if (last === Number.MAX_SAFE_INTEGER) return counts.total();
    return counts.rank(last) - counts.rank(first - 1);
  }

  /** @returns where the rows of a range begin that follow the first `skip` ones of its `rows` */
  function startOf(range: IdRange, rows: number, skip: number, isDown: boolean): Start {
    const { first, last } = range;
    const counts = indexFor(range);
    if (counts === null || skip < FANOUT) return { first, last, skip };
    const nth = isDown ? rows - 1 - skip : skip;
    const found = counts.positionOf(counts.rank(first - 1) + nth);
    if (!isDown) return { ...found, last };
    const end = Math.min(last, found.first + FANOUT - 1);
    return { first, last: end, skip: countRows(found.first, end) - 1 - found.skip };
  }

  /** @param ranges ascending */
  return (query: PageQuery, ranges = allIds, values: Values = {}): ListRows => {
    /** @returns at most `limit` rows of a range, without the first `skip` ones of its `rows` in the order of the page */
    function read(range: IdRange, rows: number, skip: number, limit: number) {
      const isDown = query.sort === "-id";
      const start = startOf(range, rows, skip, isDown);
      const first = Math.max(start.first, isDown ? 0 : (query.after ?? 0) + 1);
      const last = Math.min(start.last, isDown ? maxId(query) : start.last);
      const statement = (range.isExact ? exact : timed)[isDown ? "descending" : "ascending"];
      if (first > last) return [];
      return statement.iterate({ ...values, first, last, skip: start.skip, limit });
    }

    const [only = { first: 1, last: 0, isExact: true }] = ranges;
    if (ranges.length <= 1) {
      const total = count(only, values);
      const isPast = query.offset >= total;
      const rows = isPast ? [] : read(only, total, query.offset, rowsToRead(query));
      return { total, rows };
    }
    const counted = ranges.map((range) => ({ range, rows: count(range, values) }));

    function* readAll(): Generator<JsonRow> {
      let skip = query.offset;
      let limit = rowsToRead(query);
      for (const { range, rows } of query.sort === "-id" ? counted.toReversed() : counted) {
        if (skip >= rows) {
          skip -= rows;
          continue;
        }
        for (const row of read(range, rows, skip, limit)) {
          yield row;
          limit -= 1;
        }
        if (limit === 0) return;
        skip = 0;
      }
    }

    return { total: counted.reduce((sum, { rows }) => sum + rows, 0), rows: readAll() };
  };
}
