/**
 * Reads pages of lists with their exact totals. Small pages that are requested in one turn of the event loop share
 * one statement. A large page takes several statements in one snapshot.
 */
import { fail } from "../error.ts";
import type { BuiltPage, LargePages, PageBuilder } from "../large-page.ts";
import type { OrderStatus } from "../order.ts";
import { LARGE_PAGE_BYTES, nextAfter, type Page, type PageQuery, rowsToRead } from "../page.ts";
import { byPosition, createBatchQueue, separateOnError } from "./batch.ts";
import type { Database, Session, Value } from "./connection.ts";
import { isCausedByStatement, isStatementTimeout } from "./errors.ts";

/** Maximum number of small pages per statement. */
const MAX_PAGES = 16;
/**
 * Maximum number of rows that one statement reads or skips for several pages. A page of more rows has a statement of
 * its own, so that it does not delay others.
 */
const MAX_BATCH_ROWS = 1_000;

/**
 * Timeout for a large page, checked between two slices. Each slice also has the statement timeout. It is much
 * shorter than the timeout of the limiter, which replaces all connections.
 */
export const LARGE_PAGE_TIMEOUT_MS = 20_000;
/** Timeout in the limiter. Only a server that does not respond at all reaches it. */
const NO_RESPONSE_TIMEOUT_MS = 60_000;

export type ListFilter = "user_id" | "status";
/** A query for a page, with a value for each filter of the list. */
export type ListQuery = PageQuery & { readonly user_id?: number; readonly status?: OrderStatus };

/** A list of the records that match its filters. */
export interface List<Row> {
  readonly table: "users" | "orders";
  readonly columns: string;
  /** A record as JSON, from the columns of the table. */
  readonly json: string;
  readonly filters: readonly ListFilter[];
  /**
   * Selects the orders in one status. It is a part of the text of the statement: if it was a parameter, PostgreSQL could
   * not use its statistics, and would search all orders for a rare status.
   */
  readonly status?: OrderStatus;
  /** @returns the same JSON */
  readonly toJson: (row: Row) => string;
}

/** Reads a page of a list. */
export type ReadList = (query: ListQuery) => Promise<Page>;

export interface ListReader {
  prepare<Row extends { readonly id: number }>(list: List<Row>): ReadList;
}

type Filtered = Pick<List<unknown>, "table" | "filters" | "status">;

/** @returns the SQL of the value of a filter. @param at position of the filter */
type SqlOf = (filter: ListFilter, at: number) => string;

/** @returns conditions to add to a where clause */
function conditions({ table, filters, status }: Filtered, sqlOf: SqlOf): string {
  const in_status = status === undefined ? "" : ` and ${table}.status = '${status}'`;
  return (
    filters.map((name, at) => ` and ${table}.${name} = ${sqlOf(name, at)}`).join("") + in_status
  );
}

/** Triggers maintain the counts of whole lists, and of the orders in each status. */
function countsOf({ table, status }: Filtered): string {
  if (table === "users") return "list = 'users'";
  return status === undefined ? "list <> 'users'" : `list = '${status}'`;
}

/** @returns a query for the number of matching records */
function totalQuery(list: Filtered, sqlOf: SqlOf): string {
  const counts = countsOf(list);
  const filter = conditions(list, sqlOf);
  return list.filters.includes("user_id")
    ? `select count(*) from orders where true${filter}`
    : `select coalesce(sum(records), 0) from counts where ${counts}`;
}

/**
 * The parameter of the statement is a JSON array of pages. It returns a `SmallPageRow` for each page. PostgreSQL
 * builds the JSON: one text takes a tenth of the time that the columns of twenty rows take in Bun.SQL. The limit and
 * offset are columns, so that the plan does not depend on them.
 */
function smallPageStatement<Row>(list: List<Row>): string {
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

/** Upper bound of the size of a row in bytes. No other text is longer than 254 characters. */
const text_bytes = {
  users: "octet_length(metadata) + 1000",
  orders: "octet_length(items) + octet_length(metadata) + 1000",
};

/** The first three parameters of a slice are its limit, its offset and the id after which it begins. */
const parameterOf: SqlOf = (_filter, at) => `$${4 + at}`;

/**
 * Parameters of the statement: limit, offset, the id after which the page begins, and the values of the filters. It
 * returns the first rows of the page: about 256 KiB plus one row at most, because Bun.SQL keeps a whole result in
 * memory. `id` is qualified, because a column alias hides it.
 */
function sliceStatement<Row>(list: List<Row>, total: string): string {
  const { table, columns } = list;
  const filter = conditions(list, parameterOf);
  return `
    with
      list (matching) as materialized (
        select matching::float8 from (${total}) as counted (matching)
      ),
      page as materialized (
        select ${columns}
        from ${table}
        where ${table}.id > $3${filter}
        order by ${table}.id
        limit $1 offset $2
      ),
      measured (id, bytes_before) as (
        select id, sum(${text_bytes[table]}) over (
          order by id rows between unbounded preceding and 1 preceding
        )
        from page
      )
    select list.matching, (select count(*)::int from page) as available, page.*
    from list
    left join page on page.id < coalesce(
      (select min(id) from measured where bytes_before >= ${LARGE_PAGE_BYTES}), 'infinity'
    )
    order by page.id
  `;
}

/** An empty page still has one row, with the total and a null id. */
type ListRow<Row> = { readonly matching: number; readonly available: number } & (
  | Row
  | { readonly id: null }
);

interface Slice<Row> {
  readonly total: number;
  readonly rows: readonly Row[];
  /** Whether the slice contains all remaining rows of the query. */
  readonly is_complete: boolean;
}

/** Limit, offset and id that a slice starts from. */
type Start = Required<PageQuery>;

function startOf(query: PageQuery): Start {
  return { ...query, limit: rowsToRead(query), after: query.after ?? 0 };
}

/**
 * Builds a large page in one snapshot.
 * @throws {AppError} invalid if the page exceeds 16 MiB; unavailable if the database is unreachable or busy
 */
export function buildInSnapshot(
  db: Database,
  large_pages: LargePages,
  work: (session: Session, page: PageBuilder) => Promise<BuiltPage>,
): Promise<Page> {
  return large_pages.build((page) =>
    db.transact((session) => work(session, page), {
      access: "read",
      mode: "isolation level repeatable read, read only",
      timeout_ms: NO_RESPONSE_TIMEOUT_MS,
    }),
  );
}

/** @returns a function that reads a page slice by slice, in one snapshot */
function prepareSlices<Row extends { readonly id: number }>(
  db: Database,
  large_pages: LargePages,
  list: List<Row>,
): ReadList {
  const first = sliceStatement(list, totalQuery(list, parameterOf));
  const next = sliceStatement(list, "select 0");

  async function readSlice(
    session: Session,
    statement: string,
    { limit, offset, after }: Start,
    values: readonly Value[],
  ): Promise<Slice<Row>> {
    const rows = await session.all<ListRow<Row>>(statement, limit, offset, after, ...values);
    const found = rows.filter((row): row is ListRow<Row> & Row => row.id !== null);
    const { matching = 0, available = 0 } = rows[0] ?? {};
    return { total: matching, rows: found, is_complete: found.length === available };
  }

  /**
   * @param session in one snapshot
   * @throws {AppError} unavailable if reading exceeds the timeout
   */
  async function addSlices(
    session: Session,
    query: ListQuery,
    page: PageBuilder,
  ): Promise<BuiltPage> {
    page.clear();
    const values = list.filters.map((name) => query[name] ?? null);
    const deadline_ms = performance.now() + LARGE_PAGE_TIMEOUT_MS;
    let start = startOf(query);
    let slice = await readSlice(session, first, start, values);
    const { total: matching } = slice;
    for (let missing = query.limit; ; ) {
      const added = slice.rows.slice(0, missing);
      page.add(added.map(list.toJson));
      missing -= added.length;
      const last_id = added.at(-1)?.id ?? start.after;
      if (slice.is_complete) {
        const has_more = slice.rows.length > added.length;
        return { total: matching, next_after: nextAfter({ last_id, has_more }) };
      }
      if (performance.now() > deadline_ms) {
        fail("unavailable", "the page takes too long to read");
      }
      start = { limit: start.limit - slice.rows.length, offset: 0, after: last_id };
      slice = await readSlice(session, next, start, values);
    }
  }

  return (query) =>
    buildInSnapshot(db, large_pages, (session, page) => addSlices(session, query, page));
}

interface SmallPageRow {
  readonly position: number;
  readonly total: number;
  readonly is_large: boolean;
  /** Comma-separated JSON; `null` if the page is empty or large. */
  readonly records: string | null;
  readonly next_after: number | null;
}

/** @throws {AppError} invalid if a page exceeds 16 MiB; unavailable if the database is unreachable or busy */
export function createListReader(db: Database, large_pages: LargePages): ListReader {
  const { limiter, connections, readMany } = db;
  return {
    prepare(list) {
      const statement = smallPageStatement(list);
      const readLarge = prepareSlices(db, large_pages, list);

      async function run(queries: readonly ListQuery[]): Promise<readonly SmallPageRow[]> {
        const rows = await readMany((session) =>
          session.all<SmallPageRow>(statement, JSON.stringify(queries)),
        );
        return byPosition(rows);
      }

      const sizeOf = ({ limit, offset }: PageQuery) => limit + offset;
      const enqueue = createBatchQueue({
        // A page can take too long by its count. A look-up cannot.
        run: separateOnError(
          run,
          (error) => isCausedByStatement(error) || isStatementTimeout(error),
        ),
        max_items: MAX_PAGES,
        max_batches: connections,
        max_size: MAX_BATCH_ROWS,
        sizeOf,
      });

      async function readSmall(query: ListQuery): Promise<SmallPageRow | undefined> {
        if (sizeOf(query) <= MAX_BATCH_ROWS) return enqueue(query);
        return (await run([query]))[0];
      }

      return async (query) => {
        const row = await limiter.admit("read", () => readSmall(query));
        if (row === undefined) throw new Error("the query for a page returned no row");
        const { total, is_large, records, next_after } = row;
        return is_large ? readLarge(query) : { total, records: records ?? "", next_after };
      };
    },
  };
}
