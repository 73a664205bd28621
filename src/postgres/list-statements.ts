/** The statements that read pages of lists. */
import { jsonBytes } from "../columns.ts";
import { Order, type OrderStatus, orderStatuses } from "../order.ts";
import { LARGE_PAGE_BYTES, type Sort } from "../page.ts";
import type { RecordTable } from "../record.ts";
import { User } from "../user.ts";
import { sumOfCounts } from "./counts.ts";

/**
 * Maximum number of rows that one statement reads or skips for several pages, and counts for each. A page of more rows
 * has a statement of its own, so that it does not delay others.
 */
export const MAX_BATCH_ROWS = 1_000;

export type ListFilter = "user_id" | "status";
/** A list of the records that match its filters. */
export interface List {
  readonly table: RecordTable;
  /** A record as JSON, from the columns of the table. */
  readonly json: string;
  readonly filters: readonly ListFilter[];
  /**
   * Selects the orders in one status. It is a part of the text of the statement: if it were a parameter, PostgreSQL could
   * not use its statistics, and would search all orders for a rare status.
   */
  readonly status?: OrderStatus;
}

/** The SQL that depends on the order of a list. */
export const sortOrders = {
  id: {
    direction: "asc",
    /** Compares an id with another one. */
    isAfter: ">",
    isBefore: "<",
    /** Aggregates for the first and the last id. */
    first: "min",
    last: "max",
    /** From an id to the next one that is possible. */
    step: 1,
    /** A number before the first id, and one after the last. */
    start: 0,
    end: "infinity",
  },
  "-id": {
    direction: "desc",
    isAfter: "<",
    isBefore: ">",
    first: "max",
    last: "min",
    step: -1,
    start: 2 ** 53,
    end: "-infinity",
  },
} as const;

export type SortOrder = (typeof sortOrders)[Sort];

/** @returns the SQL of the value of a filter. @param at position of the filter */
type SqlOf = (filter: ListFilter, at: number) => string;

/** @returns conditions to add to a where clause */
function conditions({ table, filters, status }: List, sqlOf: SqlOf): string {
  const inStatus = status === undefined ? "" : ` and ${table}.status = '${status}'`;
  return (
    filters.map((name, at) => ` and ${table}.${name} = ${sqlOf(name, at)}`).join("") + inStatus
  );
}

/** @returns whether each page reads all orders of a user: to count them, and perhaps to find one in a rare status */
function isOfUser({ filters }: List): boolean {
  return filters.includes("user_id");
}

/** @returns a query for the number of matching records */
function totalQuery(list: List, sqlOf: SqlOf): string {
  const { table, status } = list;
  if (isOfUser(list)) {
    return `select count(*) from orders where true${conditions(list, sqlOf)}`;
  }
  if (table === "users") return sumOfCounts("users");
  return status === undefined ? sumOfCounts(...orderStatuses) : sumOfCounts(status);
}

/** @returns the same query for the row `requested`. Its result is null if the user has more than `MAX_BATCH_ROWS` orders */
function boundedTotalQuery({ filters }: List): string {
  const matching = filters.includes("status")
    ? "count(*) filter (where status = requested.status)"
    : "count(*)";
  return `
    select case when count(*) <= ${MAX_BATCH_ROWS} then ${matching} end
    from (
      select status
      from orders
      where user_id = requested.user_id
      limit ${MAX_BATCH_ROWS + 1}
    ) as counted
  `;
}

/** Where a page begins, as SQL. */
interface Position {
  readonly offset: string;
  readonly after: string;
}

/**
 * Finds the first id of a page in an index alone: PostgreSQL would read every row that an offset skips, and build its
 * JSON.
 * @returns an expression; `null` past the end
 */
function firstId(list: List, order: SortOrder, { offset, after }: Position, sqlOf: SqlOf): string {
  const { table } = list;
  const { direction, isAfter, step } = order;
  return `
    case
      when ${offset} = 0 then ${after} + ${step}
      else (
        select id
        from ${table}
        where ${table}.id ${isAfter} ${after}${conditions(list, sqlOf)}
        order by ${table}.id ${direction}
        limit 1 offset ${offset}
      )
    end
  `;
}

const minBytes = { users: jsonBytes(User, "lower"), orders: jsonBytes(Order, "lower") };

interface PageOptions {
  /** Whether to build the JSON only of pages that are not large. */
  readonly measured: boolean;
  /** Whether to leave out pages of users with more than `MAX_BATCH_ROWS` orders, for which others would wait. */
  readonly shared: boolean;
}

/**
 * The parameter of the statement is a JSON array of pages. It returns a `PageRow` for each page, or an `UnreadPageRow`.
 * PostgreSQL builds the JSON: in Bun.SQL, one text costs less than the columns of twenty rows. The limit and offset are
 * columns, so that the plan does not depend on them. With `offset 0`, the first id is looked up once, not wherever it is
 * used.
 */
export function pageStatement(
  list: List,
  order: SortOrder,
  { measured, shared }: PageOptions,
): string {
  const { table, json } = list;
  const { direction, isAfter, last, start } = order;
  const sqlOf = (name: ListFilter) => `requested.${name}`;
  const filter = conditions(list, sqlOf);
  const bounded = shared && isOfUser(list);
  const columns = `"limit", "offset", after, user_id, status`;
  const position = {
    offset: `requested."offset"`,
    after: `coalesce(nullif(requested.after, 0), ${start})`,
  };
  const firstOfPage = firstId(list, order, position, sqlOf);
  const rows = `
    select *
    from ${table}
    where ${table}.id ${isAfter}= first.id${filter}
    order by ${table}.id ${direction}
    limit requested."limit"
  `;
  const bytes = measured
    ? `select sum(${minBytes[table]}) as bytes from (${rows}) as row`
    : "select 0 as bytes";
  return `
    select
      requested.position::integer as position,
      ${bounded ? "counted.total" : `(${totalQuery(list, sqlOf)})`}::bigint as total,
      coalesce(greatest(measured.bytes, octet_length(page.records)), 0)::bigint as bytes,
      case when octet_length(page.records) <= ${LARGE_PAGE_BYTES} then page.records end as records,
      case
        when requested.after is not null and (
          select id
          from ${table}
          where ${table}.id ${isAfter} page.last_id${filter}
          order by ${table}.id ${direction}
          limit 1
        ) is not null then page.last_id
      end as next_after
    from rows from (
      json_to_recordset($1::text::json)
        as ("limit" bigint, "offset" bigint, after bigint, user_id bigint, status text)
    ) with ordinality as requested (${columns}, position)
    ${bounded ? `cross join lateral (${boundedTotalQuery(list)}) as counted (total)` : ""}
    cross join lateral (
      select ${bounded ? `case when counted.total is not null then ${firstOfPage} end` : firstOfPage} as id
      offset 0
    ) as first
    cross join lateral (${bytes}) as measured
    cross join lateral (
      select ${last}(id) as last_id, string_agg(${json}, ',') as records
      from (${rows}) as row
      where measured.bytes <= ${LARGE_PAGE_BYTES}
    ) as page
  `;
}

/** The first three parameters of a slice are its limit, its offset and the id after which it begins. */
const parameterOf: SqlOf = (_filter, at) => `$${4 + at}`;
const slicePosition: Position = { offset: "$2::bigint", after: "$3::bigint" };

/**
 * Parameters of the statement: limit, offset, the id after which the page begins, and the values of the filters. It
 * returns the first rows of the page: about 256 KiB plus one row. The JSON is built only of these.
 * @param isFirst whether it also counts the matching records
 */
export function sliceStatement(list: List, order: SortOrder, isFirst: boolean): string {
  const { table, json } = list;
  const { direction, isAfter, isBefore, first, end } = order;
  const filter = conditions(list, parameterOf);
  const total = isFirst ? totalQuery(list, parameterOf) : "select 0";
  return `
    with
      list (matching) as materialized (
        select matching::bigint from (${total}) as counted (matching)
      ),
      page as materialized (
        select *
        from ${table}
        where id ${isAfter}= ${firstId(list, order, slicePosition, parameterOf)}${filter}
        order by id ${direction}
        limit $1
      ),
      measured (id, bytes_before) as (
        select id, sum(${minBytes[table]}) over (
          order by id ${direction} rows between unbounded preceding and 1 preceding
        )
        from page
      )
    select list.matching, (select count(*)::int from page) as available, page.id, ${json} as json
    from list
    left join page on page.id ${isBefore} coalesce(
      (select ${first}(id)::float8 from measured where bytes_before >= ${LARGE_PAGE_BYTES}), '${end}'
    )
    order by page.id ${direction}
  `;
}

export interface PageRow {
  readonly position: number;
  readonly total: number;
  /** Size of the records: exact if they are read, otherwise a lower bound. */
  readonly bytes: number;
  /** Comma-separated JSON; `null` if the page is empty or large. */
  readonly records: string | null;
  readonly next_after: number | null;
}

/** The row of a page that a shared statement has not read. */
export interface UnreadPageRow {
  readonly position: number;
  readonly total: null;
}

/** An empty page still has one row, with the total and a null id. */
export interface SliceRow {
  readonly matching: number;
  /** Number of rows of the page that have not been read before this slice. */
  readonly available: number;
  readonly id: number | null;
  readonly json: string;
}
