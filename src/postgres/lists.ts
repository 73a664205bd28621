/**
 * Reads pages of lists with their exact totals. Small pages that are requested in one turn of the event loop share
 * one statement. A large page takes several statements in one snapshot.
 */
import type { LargePages } from "../large-page.ts";
import { type OrderStatus, orderStatuses } from "../order.ts";
import { type JsonRow, LARGE_PAGE_BYTES, type Page, type PageQuery, rowsToRead } from "../page.ts";
import { byPosition, createBatchQueue, itemAt, separateOnError } from "./batch.ts";
import type { Database, Session } from "./connection.ts";
import { sumOfCounts } from "./counts.ts";
import { isCausedByStatement, isStatementTimeout } from "./errors.ts";
import { buildInSlices, type Slice } from "./slices.ts";

/** Maximum number of small pages per statement. */
const MAX_PAGES = 16;
/**
 * Maximum number of rows that one statement reads or skips for several pages, and counts for each. A page of more rows
 * has a statement of its own, so that it does not delay others.
 */
const MAX_BATCH_ROWS = 1_000;
/**
 * Maximum number of records whose JSON is built before its size is known, because measuring takes time as well. With
 * records of the largest size, this is a few MiB.
 */
const MAX_UNMEASURED_ROWS = 100;

export type ListFilter = "user_id" | "status";
/** A query for a page, with a value for each filter of the list. */
export type ListQuery = PageQuery & { readonly user_id?: number; readonly status?: OrderStatus };

/** A list of the records that match its filters. */
export interface List {
  readonly table: "users" | "orders";
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
interface SortOrder {
  readonly direction: "asc" | "desc";
  /** Compares an id with another one. */
  readonly isAfter: ">" | "<";
  readonly isBefore: "<" | ">";
  /** Aggregates for the first and the last id. */
  readonly first: "min" | "max";
  readonly last: "max" | "min";
  /** From an id to the next one that is possible. */
  readonly step: 1 | -1;
  /** A number before the first id, and one after the last. */
  readonly start: number;
  readonly end: "infinity" | "-infinity";
}

const ascending: SortOrder = {
  direction: "asc",
  isAfter: ">",
  isBefore: "<",
  first: "min",
  last: "max",
  step: 1,
  start: 0,
  end: "infinity",
};
const descending: SortOrder = {
  direction: "desc",
  isAfter: "<",
  isBefore: ">",
  first: "max",
  last: "min",
  step: -1,
  start: 2 ** 53,
  end: "-infinity",
};

/** @see RecordStore.list */
export type ReadPage = (query: ListQuery, client?: string) => Promise<Page>;

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

/** Lower bound of the size of a record as JSON, in bytes. Only control characters of a name make it much larger. */
const textBytes = {
  users: "octet_length(metadata) + octet_length(email) + coalesce(octet_length(name), 0) + 130",
  orders: "octet_length(items) + octet_length(metadata) + 170",
};

interface SmallPageOptions {
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
function smallPageStatement(
  list: List,
  order: SortOrder,
  { measured, shared }: SmallPageOptions,
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
    ? `select sum(${textBytes[table]}) as bytes from (${rows}) as row`
    : "select 0 as bytes";
  return `
    select
      requested.position::integer as position,
      ${bounded ? "counted.total" : `(${totalQuery(list, sqlOf)})`}::float8 as total,
      coalesce(greatest(measured.bytes, octet_length(page.records)), 0)::float8 as bytes,
      case when octet_length(page.records) <= ${LARGE_PAGE_BYTES} then page.records end as records,
      case
        when requested.after is not null and (
          select id
          from ${table}
          where ${table}.id ${isAfter} page.last_id${filter}
          order by ${table}.id ${direction}
          limit 1
        ) is not null then page.last_id::float8
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
 */
function sliceStatement(list: List, order: SortOrder, total: string): string {
  const { table, json } = list;
  const { direction, isAfter, isBefore, first, end } = order;
  const filter = conditions(list, parameterOf);
  return `
    with
      list (matching) as materialized (
        select matching::float8 from (${total}) as counted (matching)
      ),
      page as materialized (
        select *
        from ${table}
        where id ${isAfter}= ${firstId(list, order, slicePosition, parameterOf)}${filter}
        order by id ${direction}
        limit $1
      ),
      measured (id, bytes_before) as (
        select id, sum(${textBytes[table]}) over (
          order by id ${direction} rows between unbounded preceding and 1 preceding
        )
        from page
      )
    select list.matching, (select count(*)::int from page) as available, page.id::float8 as id, ${json} as json
    from list
    left join page on page.id ${isBefore} coalesce(
      (select ${first}(id)::float8 from measured where bytes_before >= ${LARGE_PAGE_BYTES}), '${end}'
    )
    order by page.id ${direction}
  `;
}

/** An empty page still has one row, with the total and a null id. */
interface SliceRow {
  readonly matching: number;
  /** Number of rows of the page that have not been read before this slice. */
  readonly available: number;
  readonly id: number | null;
  readonly json: string;
}

/** @returns a function that reads a page from its beginning. The session is in one snapshot */
function prepareSlices(
  list: List,
  order: SortOrder,
): (session: Session, query: ListQuery) => AsyncIterable<Slice> {
  const first = sliceStatement(list, order, totalQuery(list, parameterOf));
  const next = sliceStatement(list, order, "select 0");

  return async function* readSlices(session, query) {
    const values = list.filters.map((name) => query[name] ?? null);
    let { offset } = query;
    let after = query.after || order.start;
    let missing = rowsToRead(query);
    let total = 0;
    for (let statement = first; ; statement = next) {
      const found = await session.all<SliceRow>(statement, missing, offset, after, ...values);
      const rows = found.filter((row): row is SliceRow & JsonRow => row.id !== null);
      const { matching = 0, available = 0 } = found[0] ?? {};
      total += matching;
      const isLast = rows.length === available;
      yield { total, rows, isLast };
      if (isLast) return;
      missing -= rows.length;
      offset = 0;
      after = rows.at(-1)?.id ?? after;
    }
  };
}

interface PageRow {
  readonly position: number;
  readonly total: number;
  /** Size of the records: exact if they are read, otherwise a lower bound. */
  readonly bytes: number;
  /** Comma-separated JSON; `null` if the page is empty or large. */
  readonly records: string | null;
  readonly next_after: number | null;
}

/** Of a page that a shared statement has not read. */
interface UnreadPageRow {
  readonly position: number;
  readonly total: null;
}

/** How many rows a page reads or skips, apart from those that are counted. */
function sizeOf({ limit, offset }: PageQuery): number {
  return limit + offset;
}

function prepareSortedList(
  db: Database,
  largePages: LargePages,
  list: List,
  order: SortOrder,
): ReadPage {
  const statementsFor = (shared: boolean) => ({
    measuring: smallPageStatement(list, order, { measured: true, shared }),
    unmeasured: smallPageStatement(list, order, { measured: false, shared }),
  });
  const sharedStatements = statementsFor(true);
  const ownStatements = statementsFor(false);
  const readSlices = prepareSlices(list, order);

  async function run<Row extends PageRow | UnreadPageRow>(
    { measuring, unmeasured }: typeof ownStatements,
    queries: readonly ListQuery[],
    client?: string,
  ): Promise<readonly Row[]> {
    const mayBeLarge = queries.some(({ limit }) => limit > MAX_UNMEASURED_ROWS);
    const statement = mayBeLarge ? measuring : unmeasured;
    const rows = await db.run(
      "list",
      (session) => session.all<Row>(statement, JSON.stringify(queries)),
      { admitted: queries.length, client },
    );
    const ordered = byPosition(rows);
    return queries.map((_query, at) => itemAt(ordered, at));
  }

  const enqueue = createBatchQueue({
    // A page can take too long by its count. A look-up cannot.
    run: separateOnError(
      (queries: readonly ListQuery[]) => run<PageRow | UnreadPageRow>(sharedStatements, queries),
      (error) => isCausedByStatement(error) || isStatementTimeout(error),
    ),
    maxItems: MAX_PAGES,
    maxBatches: db.limiter.listConnections,
    maxSize: MAX_BATCH_ROWS,
    sizeOf,
  });

  async function readSmall(query: ListQuery, client?: string): Promise<PageRow> {
    if (sizeOf(query) <= MAX_BATCH_ROWS) {
      const row = await enqueue(query);
      if (row.total !== null) return row;
    }
    return itemAt(await run<PageRow>(ownStatements, [query], client), 0);
  }

  return async (query, client) => {
    const row = await db.limiter.admit("list", () => readSmall(query, client), client);
    const { total, bytes, records, next_after } = row;
    if (bytes <= LARGE_PAGE_BYTES) return { total, records: records ?? "", nextAfter: next_after };
    const readPage = (session: Session) => readSlices(session, query);
    return buildInSlices(db, largePages, { query, client, bytes, readSlices: readPage });
  };
}

/** @throws {AppError} invalid if a page exceeds 16 MiB; unavailable if the database is unreachable or busy */
export function prepareList(db: Database, largePages: LargePages, list: List): ReadPage {
  const readUp = prepareSortedList(db, largePages, list, ascending);
  const readDown = prepareSortedList(db, largePages, list, descending);
  return (query, client) =>
    query.sort === "-id" ? readDown(query, client) : readUp(query, client);
}
