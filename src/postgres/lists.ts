/**
 * Reads a page of a list and its exact total. A small page takes one statement, a large page several statements in
 * one snapshot.
 */
import type { PostgresLayout } from "../database-url.ts";
import { fail } from "../error.ts";
import type { BuiltPage, LargePages, PageBuilder } from "../large-page.ts";
import {
  joinSmall,
  LARGE_PAGE_BYTES,
  nextAfter,
  type Page,
  type PageQuery,
  rowsToRead,
} from "../page.ts";
import type { Database, Session, Value } from "./connection.ts";

/**
 * Timeout for a large page, checked between two slices. Each slice also has the statement timeout. It is much
 * shorter than the timeout of the limiter, which replaces all connections.
 */
const LARGE_PAGE_TIMEOUT_MS = 20_000;
/** Timeout in the limiter. Only a server that does not respond at all reaches it. */
const NO_RESPONSE_TIMEOUT_MS = 60_000;

/** Queries for the total of a list. Triggers maintain the counts of whole lists, but not on Citus. */
export const total_queries = {
  plain: {
    users: "select coalesce(sum(records), 0) from counts where list = 'users'",
    orders: "select coalesce(sum(records), 0) from counts where list <> 'users'",
    orders_in_status: "select coalesce(sum(records), 0) from counts where list = $4",
  },
  citus: {
    users: "select count(*) from users",
    orders: "select count(*) from orders",
    orders_in_status: "select count(*) from orders where status = $4",
  },
} as const satisfies Record<PostgresLayout, Record<string, string>>;

/** Upper bound of the size of a row in bytes. No other text is longer than 254 characters. */
const text_bytes = {
  users: "octet_length(metadata) + 1000",
  orders: "octet_length(items) + octet_length(metadata) + 1000",
};

interface ListStatementParts {
  readonly columns: string;
  readonly table: "users" | "orders";
  /** A condition on `$4` and `$5`; empty for the whole table. */
  readonly where: string;
  /** A query for the total. */
  readonly total: string;
}

export interface ListStatements {
  /** Also counts the records that match the filters. */
  readonly first: string;
  /** Reads the next slice of a large page, without counting. */
  readonly next: string;
}

/**
 * Parameters of the statement: limit, offset, and the id after which the page begins. It returns the first rows of
 * the page: about 256 KiB plus one row at most, because Bun.SQL keeps a whole result in memory. `id` is qualified,
 * because a column alias hides it.
 */
function listStatement({ columns, table, where, total }: ListStatementParts): string {
  const filter = where === "" ? "" : `and ${where}`;
  return `
    with
      list (matching) as materialized (
        select matching::float8 from (${total}) as counted (matching)
      ),
      page as materialized (
        select ${columns}
        from ${table}
        where ${table}.id > $3 ${filter}
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

/** @returns both statements of a list */
export function listStatements(parts: ListStatementParts): ListStatements {
  return { first: listStatement(parts), next: listStatement({ ...parts, total: "select 0" }) };
}

/** An empty page still has one row, with the total and a null id. */
type ListRow<Row> = { readonly matching: number; readonly available: number } & (
  | Row
  | { readonly id: null }
);

/** A list: its statements, the values of its filters, and how its rows become JSON. */
export interface ListSource<Row> {
  readonly statements: ListStatements;
  /** `$4` and `$5`. */
  readonly filters: readonly Value[];
  readonly toJson: (row: Row) => string;
}

interface Slice<Row> {
  readonly total: number;
  readonly rows: readonly Row[];
  /** Whether the slice contains all remaining rows of the query. */
  readonly is_complete: boolean;
}

/** Limit, offset and id that a slice starts from. */
type Start = Required<PageQuery>;

async function readSlice<Row extends { readonly id: number }>(
  session: Session,
  statement: string,
  { filters }: ListSource<Row>,
  { limit, offset, after }: Start,
): Promise<Slice<Row>> {
  const rows = await session.all<ListRow<Row>>(statement, limit, offset, after, ...filters);
  const found = rows.filter((row): row is ListRow<Row> & Row => row.id !== null);
  const { matching = 0, available = 0 } = rows[0] ?? {};
  return { total: matching, rows: found, is_complete: found.length === available };
}

/**
 * Reads the page slice by slice. The session must be in one snapshot.
 * @throws {AppError} unavailable if reading exceeds the timeout
 */
async function addSlices<Row extends { readonly id: number }>(
  session: Session,
  list: ListSource<Row>,
  query: PageQuery,
  page: PageBuilder,
): Promise<BuiltPage> {
  page.clear();
  const deadline_ms = performance.now() + LARGE_PAGE_TIMEOUT_MS;
  const { first, next } = list.statements;
  let start: Start = { ...query, limit: rowsToRead(query), after: query.after ?? 0 };
  let slice = await readSlice(session, first, list, start);
  const { total } = slice;
  for (let missing = query.limit; ; ) {
    const added = slice.rows.slice(0, missing);
    page.add(added.map(list.toJson));
    missing -= added.length;
    const last_id = added.at(-1)?.id ?? start.after;
    if (slice.is_complete) {
      const has_more = slice.rows.length > added.length;
      return { total, next_after: nextAfter({ last_id, has_more }) };
    }
    if (performance.now() > deadline_ms) fail("unavailable", "the page takes too long to read");
    start = { limit: start.limit - slice.rows.length, offset: 0, after: last_id };
    slice = await readSlice(session, next, list, start);
  }
}

/**
 * Reads a page and its total.
 * @throws {AppError} invalid if the page exceeds 16 MiB
 * @throws {AppError} unavailable if a large page takes too long to read, or the database is unreachable or busy
 */
export async function readPage<Row extends { readonly id: number }>(
  db: Database,
  large: LargePages,
  list: ListSource<Row>,
  query: PageQuery,
): Promise<Page> {
  const start: Start = { ...query, limit: rowsToRead(query), after: query.after ?? 0 };
  const { total, rows, is_complete } = await db.read((session) =>
    readSlice(session, list.statements.first, list, start),
  );
  const joined = is_complete ? joinSmall(rows, query.limit, list.toJson) : null;
  if (joined !== null) {
    return { total, records: joined.records, next_after: nextAfter(joined) };
  }
  return large.build((page) =>
    db.transact((session) => addSlices(session, list, query, page), {
      access: "read",
      mode: "isolation level repeatable read, read only",
      timeout_ms: NO_RESPONSE_TIMEOUT_MS,
    }),
  );
}
