/** A page of a list and its exact total: a small one by one statement, a large one by several in one snapshot. */
import type { BuiltPage, LargePages, PageBuilder } from "../large-page.ts";
import {
  joinSmall,
  LARGE_PAGE_BYTES,
  nextAfter,
  type Page,
  type PageQuery,
  rowsToRead,
} from "../page.ts";
import type { PostgresLayout } from "../store.ts";
import type { Database, Session, Value } from "./connection.ts";

/** How long a large page may take, in slices that have their own timeout. */
const LARGE_PAGE_TIMEOUT_MS = 60_000;

/** What counts the rows of a list that is never walked to be counted; Citus has no triggers to count with. */
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

/** What bounds the size of a row: of its other columns no text is longer than 254 characters. */
const text_bytes = {
  users: "octet_length(metadata) + 1000",
  orders: "octet_length(items) + octet_length(metadata) + 1000",
};

interface ListStatementParts {
  readonly columns: string;
  readonly table: "users" | "orders";
  /** Of `$4` and the next; empty for the whole table. */
  readonly where: string;
  /** A query for the total. */
  readonly total: string;
}

/**
 * A statement with the parameters limit, offset, and an id that the page begins behind. It returns the first
 * rows of the page, up to some 256 KiB and one row: what it returns is in memory as a whole. The table's own
 * id, since a column hides it.
 */
export function listStatement({ columns, table, where, total }: ListStatementParts): string {
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

/** If the page is empty, there is one row, for the total. */
type ListRow<Row> = { readonly matching: number; readonly available: number } & (
  | Row
  | { readonly id: null }
);

/** A list: its statement, the values of its filters, and how its rows become JSON. */
export interface ListSource<Row> {
  readonly statement: string;
  /** `$4` and the next. */
  readonly filters: readonly Value[];
  readonly toJson: (row: Row) => string;
}

interface Slice<Row> {
  readonly total: number;
  readonly rows: readonly Row[];
  /** Whether these are all rows that were asked for and exist. */
  readonly is_complete: boolean;
}

/** Where a slice begins. */
type Start = Required<PageQuery>;

async function readSlice<Row extends { readonly id: number }>(
  session: Session,
  { statement, filters }: ListSource<Row>,
  { limit, offset, after }: Start,
): Promise<Slice<Row>> {
  const rows = await session.all<ListRow<Row>>(statement, limit, offset, after, ...filters);
  const found = rows.filter((row): row is ListRow<Row> & Row => row.id !== null);
  const { matching = 0, available = 0 } = rows[0] ?? {};
  return { total: matching, rows: found, is_complete: found.length === available };
}

/** Reads slice by slice, which one transaction makes one snapshot. */
async function addSlices<Row extends { readonly id: number }>(
  session: Session,
  list: ListSource<Row>,
  query: PageQuery,
  page: PageBuilder,
): Promise<BuiltPage> {
  page.clear();
  let start: Start = { ...query, limit: rowsToRead(query), after: query.after ?? 0 };
  let missing = query.limit;
  let last_id = 0;
  for (;;) {
    const { total, rows, is_complete } = await readSlice(session, list, start);
    const added = rows.slice(0, missing);
    page.add(added.map(list.toJson));
    missing -= added.length;
    last_id = added.at(-1)?.id ?? last_id;
    if (is_complete) {
      const has_more = rows.length > added.length;
      return { total, next_after: nextAfter({ last_id, has_more }) };
    }
    start = { limit: start.limit - rows.length, offset: 0, after: last_id };
  }
}

/** @throws {AppError} invalid if the page exceeds 16 MiB */
export async function readPage<Row extends { readonly id: number }>(
  db: Database,
  large: LargePages,
  list: ListSource<Row>,
  query: PageQuery,
): Promise<Page> {
  const start: Start = { ...query, limit: rowsToRead(query), after: query.after ?? 0 };
  const { total, rows, is_complete } = await db.read((session) => readSlice(session, list, start));
  const joined = is_complete ? joinSmall(rows, query.limit, list.toJson) : null;
  if (joined !== null) {
    return { total, records: joined.records, next_after: nextAfter(joined) };
  }
  return large.build((page) =>
    db.transact((session) => addSlices(session, list, query, page), {
      access: "read",
      mode: "isolation level repeatable read, read only",
      timeout_ms: LARGE_PAGE_TIMEOUT_MS,
    }),
  );
}
