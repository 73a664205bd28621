/**
 * Reads pages of lists with their exact totals. Small pages that are requested in one turn of the event loop share
 * one statement. A large page takes several statements in one snapshot.
 */
import type { OrderStatus } from "../order.ts";
import { type JsonRow, LARGE_PAGE_BYTES, type Page, type PageQuery, rowsToRead } from "../page.ts";
import { byPosition, createBatchQueue, itemAt } from "./batch.ts";
import type { Session } from "./connection.ts";
import type { StoreContext } from "./context.ts";
import { isCausedByStatement, isStatementTimeout } from "./errors.ts";
import {
  type List,
  MAX_BATCH_ROWS,
  type PageRow,
  pageStatement,
  type SliceRow,
  type SortOrder,
  sliceStatement,
  sortOrders,
  type UnreadPageRow,
} from "./list-statements.ts";
import { buildInSlices, type Slice } from "./page-slices.ts";

/** Maximum number of small pages per statement. */
const MAX_PAGES = 16;
/**
 * Maximum number of records whose JSON is built before its size is known, because measuring takes time as well. With
 * records of the largest size, this is a few MiB.
 */
const MAX_UNMEASURED_ROWS = 100;

/** A query for a page, with a value for each filter of the list. */
export type ListQuery = PageQuery & { readonly user_id?: number; readonly status?: OrderStatus };

/** @see RecordStore.list */
export type ReadPage = (query: ListQuery, client?: string) => Promise<Page>;

/** @returns a function that reads a page from its beginning. The session is in one snapshot */
function prepareSlices(
  list: List,
  order: SortOrder,
): (session: Session, query: ListQuery) => AsyncIterable<Slice> {
  const first = sliceStatement(list, order, true);
  const next = sliceStatement(list, order, false);

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

/** How many rows a page reads or skips, apart from those that are counted. */
function sizeOf({ limit, offset }: PageQuery): number {
  return limit + offset;
}

function prepareSortedList(context: StoreContext, list: List, order: SortOrder): ReadPage {
  const { db } = context;
  const statementsFor = (shared: boolean) => ({
    measuring: pageStatement(list, order, { measured: true, shared }),
    unmeasured: pageStatement(list, order, { measured: false, shared }),
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
    const rows = await db.runAdmitted(
      "list",
      (session) => session.all<Row>(statement, JSON.stringify(queries)),
      { client },
    );
    const ordered = byPosition(rows);
    return queries.map((_query, at) => itemAt(ordered, at));
  }

  const enqueue = createBatchQueue({
    run: (queries: readonly ListQuery[]) => run<PageRow | UnreadPageRow>(sharedStatements, queries),
    // A page can take too long by its count. A look-up cannot.
    splitsOn: (error, count) =>
      count > 1 && (isCausedByStatement(error) || isStatementTimeout(error)),
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
    return buildInSlices(db, { query, readSlices: readPage });
  };
}

/** @throws {AppError} validation_failed if a page exceeds 4 MiB; unavailable if the database is unreachable or busy */
export function prepareList(context: StoreContext, list: List): ReadPage {
  const readBySort = {
    id: prepareSortedList(context, list, sortOrders.id),
    "-id": prepareSortedList(context, list, sortOrders["-id"]),
  };
  return (query, client) => readBySort[query.sort ?? "id"](query, client);
}
