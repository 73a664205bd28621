/**
 * Reads pages of lists with their exact totals. Small pages that are requested in one turn of the event loop share
 * one statement. A large page takes several statements in one snapshot.
 */
import type { LargePages } from "../large-page.ts";
import type { OrderStatus } from "../order.ts";
import { type JsonRow, LARGE_PAGE_BYTES, type Page, type PageQuery, rowsToRead } from "../page.ts";
import { byPosition, createBatchQueue, itemAt, separateOnError } from "./batch.ts";
import type { Database, Session } from "./connection.ts";
import { isCausedByStatement, isStatementTimeout } from "./errors.ts";
import { buildInSlices, type Slice } from "./slices.ts";

/** Maximum number of small pages per statement. */
const MAX_PAGES = 16;
/**
 * Maximum number of rows that one statement reads or skips for several pages. A page of more rows has a statement of
 * its own, so that it does not delay others.
 */
const MAX_BATCH_ROWS = 1_000;

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
   * Selects the orders in one status. It is a part of the text of the statement: if it was a parameter, PostgreSQL could
   * not use its statistics, and would search all orders for a rare status.
   */
  readonly status?: OrderStatus;
}

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

/** @returns a query for the number of matching records */
function totalQuery(list: List, sqlOf: SqlOf): string {
  const { table, filters, status } = list;
  if (filters.includes("user_id")) {
    return `select count(*) from orders where true${conditions(list, sqlOf)}`;
  }
  // Triggers maintain the counts of whole lists, and of the orders in each status.
  const wholeList = table === "users" ? "list = 'users'" : "list <> 'users'";
  const counts = status === undefined ? wholeList : `list = '${status}'`;
  return `select coalesce(sum(records), 0) from counts where ${counts}`;
}

/**
 * The parameter of the statement is a JSON array of pages. It returns a `SmallPageRow` for each page. PostgreSQL
 * builds the JSON: in Bun.SQL, one text costs less than the columns of twenty rows. The limit and
 * offset are columns, so that the plan does not depend on them.
 */
function smallPageStatement(list: List): string {
  const { table, json } = list;
  const sqlOf = (name: ListFilter) => `requested.${name}`;
  const filter = conditions(list, sqlOf);
  const total = totalQuery(list, sqlOf);
  const columns = `"limit", "offset", after, user_id, status`;
  return `
    select
      requested.position::integer as position, (${total})::float8 as total, page.is_large,
      case when not page.is_large then page.records end as records,
      case
        when requested.after is not null and page.rows = requested."limit" and (
          select id
          from ${table}
          where ${table}.id > page.last_id${filter}
          order by ${table}.id
          limit 1
        ) is not null then page.last_id::float8
      end as next_after
    from rows from (
      json_to_recordset($1::text::json)
        as ("limit" bigint, "offset" bigint, after bigint, user_id bigint, status text)
    ) with ordinality as requested (${columns}, position)
    cross join lateral (
      select
        count(*) as rows, max(id) as last_id, string_agg(json, ',') as records,
        coalesce(sum(octet_length(json) + 1) > ${LARGE_PAGE_BYTES} + 1, false) as is_large
      from (
        select id, ${json} as json
        from ${table}
        where ${table}.id > coalesce(requested.after, 0)${filter}
        order by ${table}.id
        limit requested."limit" offset requested."offset"
      ) as row
    ) as page
  `;
}

/** Upper bound of the size of a record as JSON, in bytes. JSON writes a control character of a name as 6 bytes. */
const textBytes = {
  users: "octet_length(metadata) + octet_length(email) + coalesce(6 * octet_length(name), 0) + 300",
  orders: "octet_length(items) + octet_length(metadata) + 1000",
};

/** The first three parameters of a slice are its limit, its offset and the id after which it begins. */
const parameterOf: SqlOf = (_filter, at) => `$${4 + at}`;

/**
 * Parameters of the statement: limit, offset, the id after which the page begins, and the values of the filters. It
 * returns the first rows of the page: about 256 KiB plus one row at most. The JSON is built only of these.
 */
function sliceStatement(list: List, total: string): string {
  const { table, json } = list;
  const filter = conditions(list, parameterOf);
  return `
    with
      list (matching) as materialized (
        select matching::float8 from (${total}) as counted (matching)
      ),
      page as materialized (
        select *
        from ${table}
        where id > $3${filter}
        order by id
        limit $1 offset $2
      ),
      measured (id, bytes_before) as (
        select id, sum(${textBytes[table]}) over (
          order by id rows between unbounded preceding and 1 preceding
        )
        from page
      )
    select list.matching, (select count(*)::int from page) as available, page.id::float8 as id, ${json} as json
    from list
    left join page on page.id < coalesce(
      (select min(id)::float8 from measured where bytes_before >= ${LARGE_PAGE_BYTES}), 'infinity'
    )
    order by page.id
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
function prepareSlices(list: List): (session: Session, query: ListQuery) => AsyncIterable<Slice> {
  const first = sliceStatement(list, totalQuery(list, parameterOf));
  const next = sliceStatement(list, "select 0");

  return async function* readSlices(session, query) {
    const values = list.filters.map((name) => query[name] ?? null);
    let { offset, after = 0 } = query;
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

interface SmallPageRow {
  readonly position: number;
  readonly total: number;
  readonly is_large: boolean;
  /** Comma-separated JSON; `null` if the page is empty or large. */
  readonly records: string | null;
  readonly next_after: number | null;
}

/** How many rows a page reads or skips. */
function sizeOf({ limit, offset }: PageQuery): number {
  return limit + offset;
}

/** @throws {AppError} invalid if a page exceeds 16 MiB; unavailable if the database is unreachable or busy */
export function prepareList(db: Database, largePages: LargePages, list: List): ReadPage {
  const statement = smallPageStatement(list);
  const readSlices = prepareSlices(list);

  async function run(
    queries: readonly ListQuery[],
    client?: string,
  ): Promise<readonly SmallPageRow[]> {
    const rows = await db.run(
      "list",
      (session) => session.all<SmallPageRow>(statement, JSON.stringify(queries)),
      { admitted: queries.length, client },
    );
    const ordered = byPosition(rows);
    return queries.map((_query, at) => itemAt(ordered, at));
  }

  const enqueue = createBatchQueue({
    // A page can take too long by its count. A look-up cannot.
    run: separateOnError(
      (queries: readonly ListQuery[]) => run(queries),
      (error) => isCausedByStatement(error) || isStatementTimeout(error),
    ),
    maxItems: MAX_PAGES,
    maxBatches: db.limiter.listConnections,
    maxSize: MAX_BATCH_ROWS,
    sizeOf,
  });

  async function readSmall(query: ListQuery, client?: string): Promise<SmallPageRow> {
    if (sizeOf(query) <= MAX_BATCH_ROWS) return enqueue(query);
    return itemAt(await run([query], client), 0);
  }

  return async (query, client) => {
    const row = await db.limiter.admit("list", () => readSmall(query, client), client);
    const { total, is_large, records, next_after } = row;
    if (!is_large) return { total, records: records ?? "", nextAfter: next_after };
    const readPage = (session: Session) => readSlices(session, query);
    return buildInSlices(db, largePages, { query, client, bytes: 0, readSlices: readPage });
  };
}
