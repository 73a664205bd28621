/**
 * Pages of lists. If the rows are on all shards, the total and the page are two statements, and may be of different
 * moments: there is no snapshot of several servers.
 */
import { fail } from "../../error.ts";
import type { BuiltPage, LargePages, PageBuilder } from "../../large-page.ts";
import {
  joinSmall,
  LARGE_PAGE_BYTES,
  nextAfter,
  type Page,
  type PageQuery,
  rowsToRead,
} from "../../page.ts";
import type { Database, Session, Value } from "../connection.ts";
import { buildInSnapshot, LARGE_PAGE_TIMEOUT_MS } from "../lists.ts";

/** Rows of the first slice of a page. Later slices have more if the rows turn out to be small. */
const SLICE_ROWS = 100;

export interface ListParts<Row> {
  readonly table: "users" | "orders";
  readonly columns: string;
  /** A condition on `$1` and so on; empty for the whole table. */
  readonly where: string;
  /** Query for the number of matching records, as `total`. Its parameters are those of `where`. */
  readonly total: string;
  /** Whether all rows are on one shard, which can count them in the statement of the page. */
  readonly is_on_one_shard: boolean;
  /** Larger offsets are rejected; `null` for no limit. */
  readonly max_offset: number | null;
  readonly toJson: (row: Row) => string;
}

/** Reads a page of a list. The values are those of the conditions. */
export type ReadPage = (query: PageQuery, values: readonly Value[]) => Promise<Page>;

/** Where a page starts. */
interface Start {
  readonly total: number;
  /** The page has the rows with larger ids; `null` if it is empty. */
  readonly after: number | null;
}

interface Statements {
  readonly total: string;
  /** For one shard: a page and its total, as `matching`. The last parameters are those of a page, and the offset. */
  readonly page_with_total: string;
  /** The last parameters are the id after which the page begins, and the limit. */
  readonly page: string;
  /** Finds the id at an offset. The last parameters are the id after which to count, and the offset. */
  readonly seek: string;
}

function statementsOf<Row>({ table, columns, where, total }: ListParts<Row>): Statements {
  const values = where.match(/\$\d/g)?.length ?? 0;
  const [after, last] = [`$${values + 1}`, `$${values + 2}`];
  // `id` is qualified, because a column alias hides it.
  const rest = `
    from ${table}
    where ${where === "" ? "" : `${where} and`} ${table}.id > ${after}
    order by ${table}.id
  `;
  return {
    total,
    page_with_total: `
      select ${columns}, (${total}) as matching ${rest} limit ${last} offset $${values + 3}
    `,
    page: `select ${columns} ${rest} limit ${last}`,
    seek: `select ${table}.id::float8 as id ${rest} limit 1 offset ${last}`,
  };
}

/** @returns how many rows of this size a slice can have */
function sliceRows(records: readonly string[]): number {
  const length = records.reduce((sum, record) => sum + record.length, 0);
  return Math.ceil((LARGE_PAGE_BYTES * records.length) / Math.max(1, length));
}

/**
 * @throws {AppError} by the result: invalid if the page exceeds 16 MiB, unavailable if the offset is too large, a large
 * page takes too long to read, or the database is unreachable or busy
 */
export function preparePage<Row extends { readonly id: number }>(
  db: Database,
  large_pages: LargePages,
  list: ListParts<Row>,
): ReadPage {
  const statements = statementsOf(list);

  async function findStart(
    session: Session,
    { offset, after = 0 }: PageQuery,
    values: readonly Value[],
  ): Promise<Start> {
    const row = await session.first<{ total: number }>(statements.total, ...values);
    const total = row?.total ?? 0;
    if (offset === 0) return { total, after };
    if (offset >= total) return { total, after: null };
    if (list.max_offset !== null && offset > list.max_offset) {
      fail("unavailable", `an offset above ${list.max_offset} takes too long here, use after`);
    }
    const first = await session.first<{ id: number }>(statements.seek, ...values, after, offset);
    return { total, after: first && first.id - 1 };
  }

  async function addSlices(
    session: Session,
    query: PageQuery,
    values: readonly Value[],
    page: PageBuilder,
  ): Promise<BuiltPage> {
    page.clear();
    const deadline_ms = performance.now() + LARGE_PAGE_TIMEOUT_MS;
    const { total, after } = await findStart(session, query, values);
    let last_id = after;
    let missing = rowsToRead(query);
    let slice_rows = SLICE_ROWS;
    while (last_id !== null) {
      const limit = Math.min(slice_rows, missing);
      const rows = await session.all<Row>(statements.page, ...values, last_id, limit);
      missing -= rows.length;
      // With `after`, the last row only shows that there is a next page.
      const has_more = query.after !== undefined && missing === 0 && rows.length > 0;
      const records = (has_more ? rows.slice(0, -1) : rows).map(list.toJson);
      page.add(records);
      last_id = rows[records.length - 1]?.id ?? last_id;
      if (rows.length < limit || missing === 0) {
        return { total, next_after: nextAfter({ last_id, has_more }) };
      }
      if (performance.now() > deadline_ms) fail("unavailable", "the page takes too long to read");
      slice_rows = sliceRows(records);
    }
    return { total, next_after: null };
  }

  /** @returns `null` if the page exceeds 256 KiB */
  async function readSmall(query: PageQuery, values: readonly Value[]): Promise<Page | null> {
    const limit = rowsToRead(query);
    const { total, rows } = await db.read(async (session) => {
      if (list.is_on_one_shard) {
        const parameters = [...values, query.after ?? 0, limit, query.offset];
        const counted = await session.all<Row & { matching: number }>(
          statements.page_with_total,
          ...parameters,
        );
        const [first] = counted;
        if (first !== undefined) return { total: first.matching, rows: counted };
      }
      const start = await findStart(session, query, values);
      if (start.after === null) return { ...start, rows: [] };
      const page = await session.all<Row>(statements.page, ...values, start.after, limit);
      return { ...start, rows: page };
    });
    const joined = joinSmall(rows, query.limit, list.toJson);
    // Orders may have been placed between the two statements.
    const seen = query.after === undefined ? query.offset + Math.min(rows.length, query.limit) : 0;
    return (
      joined && {
        total: rows.length === 0 ? total : Math.max(total, seen),
        records: joined.records,
        next_after: nextAfter(joined),
      }
    );
  }

  return async (query, values) => {
    const small = query.limit <= SLICE_ROWS ? await readSmall(query, values) : null;
    if (small !== null) return small;
    return buildInSnapshot(db, large_pages, (session, page) =>
      addSlices(session, query, values, page),
    );
  };
}
