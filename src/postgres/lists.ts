/** A page of a list and its exact total: a small one by one statement, a large one by several in one snapshot. */
import type { LargePages, PageBuilder } from "../large-page.ts";
import { joinSmall, LARGE_PAGE_BYTES, type Page, type PageQuery } from "../page.ts";
import type { PostgresLayout } from "../store.ts";
import type { Database, Session, Value } from "./connection.ts";

/** How long a large page may take, in slices that have their own timeout. */
const LARGE_PATIENCE_MS = 60_000;

/** What counts the rows of a list that is never walked to be counted; Citus has no triggers to count with. */
export const totals = {
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

interface Parts {
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
export function listStatement({ columns, table, where, total }: Parts): string {
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
    select list.matching, page.*
    from list
    left join page on page.id < coalesce(
      (select min(id) from measured where bytes_before >= ${LARGE_PAGE_BYTES}), 'infinity'
    )
    order by page.id
  `;
}

/** Without a page there is one row, for the total. */
type ListRow<Row> = { readonly matching: number } & (Row | { readonly id: null });

/** A list: its statement, the values of its filters, and how its rows become JSON. */
export interface List<Row> {
  readonly statement: string;
  /** `$4` and the next. */
  readonly filters: readonly Value[];
  readonly toJson: (row: Row) => string;
}

interface Slice {
  readonly total: number;
  readonly records: readonly string[];
  /** Of the last record; 0 for none. */
  readonly last_id: number;
}

async function readSlice<Row extends { readonly id: number }>(
  session: Session,
  { statement, filters, toJson }: List<Row>,
  { limit, offset }: PageQuery,
  after: number,
): Promise<Slice> {
  const rows = await session.all<ListRow<Row>>(statement, limit, offset, after, ...filters);
  const found = rows.filter((row): row is ListRow<Row> & Row => row.id !== null);
  return {
    total: rows[0]?.matching ?? 0,
    records: found.map(toJson),
    last_id: found.at(-1)?.id ?? 0,
  };
}

/** How many records a page has. */
function lengthOf({ limit, offset }: PageQuery, total: number): number {
  return Math.max(0, Math.min(limit, total - offset));
}

/** Reads slice by slice, which one transaction makes one snapshot. */
async function addSlices<Row extends { readonly id: number }>(
  session: Session,
  list: List<Row>,
  query: PageQuery,
  page: PageBuilder,
): Promise<number> {
  page.clear();
  let slice = await readSlice(session, list, query, 0);
  const { total } = slice;
  let missing = lengthOf(query, total);
  while (missing > 0) {
    if (slice.records.length === 0) throw new Error("a page ended before its last record");
    page.add(slice.records);
    missing -= slice.records.length;
    if (missing > 0) {
      slice = await readSlice(session, list, { limit: missing, offset: 0 }, slice.last_id);
    }
  }
  return total;
}

/** @throws {AppError} invalid if the page exceeds 16 MiB */
export async function readPage<Row extends { readonly id: number }>(
  db: Database,
  large: LargePages,
  list: List<Row>,
  query: PageQuery,
): Promise<Page> {
  const { total, records } = await db.read((session) => readSlice(session, list, query, 0));
  const joined =
    records.length === lengthOf(query, total) ? joinSmall(records, (record) => record) : null;
  if (joined !== null) return { total, records: joined };
  return large.build((page) =>
    db.transact((session) => addSlices(session, list, query, page), {
      kind: "read",
      mode: "isolation level repeatable read, read only",
      patience_ms: LARGE_PATIENCE_MS,
    }),
  );
}
