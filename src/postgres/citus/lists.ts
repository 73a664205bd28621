/**
 * Pages of lists. A page and its total can be two statements, and then may be of different moments: there is no snapshot
 * of several servers. Concurrent requests for a list of rows that are on all shards share its total, and equal pages.
 */
import { failField } from "../../error.ts";
import {
  type JsonRow,
  joinRecords,
  LARGE_PAGE_BYTES,
  maxId,
  nextAfter,
  type Page,
  type PageQuery,
  rowsToRead,
  type Sort,
} from "../../page.ts";
import type { RecordTable } from "../../record.ts";
import { createBatchQueue } from "../batch.ts";
import type { Session, Value } from "../connection.ts";
import type { StoreContext } from "../context.ts";
import type { ListQuery, ReadPage } from "../lists.ts";
import { buildInSlices, type Slice } from "../page-slices.ts";

/** Rows of the first slice of a page. Later slices have more if the rows turn out to be small. */
const SLICE_ROWS = 100;

/** Maximum number of requests that share a total. */
const MAX_SHARED = 64;

export interface ListParts {
  readonly table: RecordTable;
  /** A record as JSON, from the columns of the table. */
  readonly json: string;
  /** A condition on `$1` and so on; empty for the whole table. */
  readonly where: string;
  /** Query for the number of matching records, as `total`. Its parameters are those of `where`. */
  readonly total: string;
  /**
   * The values of `where` for a list of one user, whose orders are on one shard, which can skip rows up to an offset.
   * `null` for other lists, which have no parameters: their concurrent requests share the total, and equal pages.
   */
  readonly valuesOf: ((query: ListQuery) => readonly Value[]) | null;
  /** Larger offsets are rejected; `null` for no limit. */
  readonly maxOffset: number | null;
}

interface SmallPage {
  readonly total: number;
  readonly rows: readonly JsonRow[];
}

function statementsOf({ table, json, where }: ListParts, sort: Sort) {
  const values = where.match(/\$\d/g)?.length ?? 0;
  const [after, second] = [1, 2].map((at) => `$${values + at}`);
  const rest = `
    from ${table}
    where ${where === "" ? "" : `${where} and`} id ${sort === "id" ? ">" : "<"} ${after}
    order by id ${sort === "id" ? "asc" : "desc"}
  `;
  return {
    /** The last parameters are the id after which the page begins, and the limit. */
    page: `select id, ${json} as json ${rest} limit ${second}`,
    /** Finds the id at an offset. The last parameters are the id after which to count, and the offset. */
    seek: `select id ${rest} limit 1 offset ${second}`,
  };
}

/** @returns how many rows of this size a slice can have */
function sliceRows(rows: readonly JsonRow[]): number {
  const length = rows.reduce((sum, { json }) => sum + json.length, 0);
  return Math.ceil((LARGE_PAGE_BYTES * rows.length) / Math.max(1, length));
}

/** @returns the id after which a query begins */
function startOf(query: PageQuery): number {
  return query.sort === "-id" ? maxId(query) + 1 : (query.after ?? 0);
}

/**
 * @throws {AppError} by the result: validation_failed if the page exceeds 16 MiB or the offset is too large, unavailable
 * if a large page takes too long to read, or the database is unreachable or busy
 */
export function prepareCitusList(context: StoreContext, list: ListParts): ReadPage {
  const { db } = context;
  const statementsBySort = { id: statementsOf(list, "id"), "-id": statementsOf(list, "-id") };
  const statementsFor = ({ sort = "id" }: PageQuery) => statementsBySort[sort];

  async function readTotal(session: Session, values: readonly Value[]): Promise<number> {
    const row = await session.first<{ total: number }>(list.total, ...values);
    return row?.total ?? 0;
  }

  /** @returns the id after which a page begins; `null` if it is empty */
  async function findStart(
    session: Session,
    query: PageQuery,
    values: readonly Value[],
    total: number,
  ): Promise<number | null> {
    const { offset, sort } = query;
    const start = startOf(query);
    if (offset === 0) return start;
    if (offset >= total) return null;
    if (list.maxOffset !== null && offset > list.maxOffset) {
      const limit = list.maxOffset.toLocaleString("en");
      const range = { min: 0, max: list.maxOffset };
      failField("offset", "range", `must be at most ${limit} on this database: use after`, range);
    }
    const { seek } = statementsFor(query);
    const first = await session.first<{ id: number }>(seek, ...values, start, offset);
    return first && (sort === "-id" ? first.id + 1 : first.id - 1);
  }

  async function* readSlices(
    session: Session,
    query: PageQuery,
    values: readonly Value[],
  ): AsyncGenerator<Slice> {
    const total = await readTotal(session, values);
    let start = await findStart(session, query, values, total);
    if (start === null) yield { total, rows: [], isLast: true };
    const { page } = statementsFor(query);
    let missing = rowsToRead(query);
    let sliceSize = SLICE_ROWS;
    while (start !== null) {
      const limit = Math.min(sliceSize, missing);
      const rows = await session.all<JsonRow>(page, ...values, start, limit);
      missing -= rows.length;
      const isLast = rows.length < limit || missing === 0;
      yield { total, rows, isLast };
      if (isLast) return;
      start = rows.at(-1)?.id ?? start;
      sliceSize = sliceRows(rows);
    }
  }

  /** One row more than the limit shows whether there is a next page. */
  async function readRows(
    session: Session,
    query: PageQuery,
    values: readonly Value[],
    total: number,
  ): Promise<readonly JsonRow[]> {
    const start = await findStart(session, query, values, total);
    if (start === null) return [];
    return session.all<JsonRow>(statementsFor(query).page, ...values, start, query.limit + 1);
  }

  async function readOnOneShard(
    query: PageQuery,
    values: readonly Value[],
    client?: string,
  ): Promise<SmallPage> {
    const { limit, offset, after } = query;
    const read = async (session: Session) => {
      const rows = await readRows(session, query, values, Number.POSITIVE_INFINITY);
      const isLast = rows.length <= limit && (rows.length > 0 || offset === 0);
      if (isLast && after === undefined) return { total: offset + rows.length, rows };
      return { total: await readTotal(session, values), rows };
    };
    return db.run("list", read, { client });
  }

  async function readOnAllShards(query: PageQuery, counting: Promise<number>): Promise<SmallPage> {
    const readAfterCounting = async () => {
      // Only an offset is compared with the total.
      const total = query.offset === 0 ? 0 : await counting;
      return db.runAdmitted("list", (session) => readRows(session, query, [], total));
    };
    const [total, rows] = await Promise.all([counting, readAfterCounting()]);
    return { total, rows };
  }

  const enqueue = createBatchQueue({
    async run(queries: readonly PageQuery[]) {
      const counting = db.runAdmitted("list", (session) => readTotal(session, []));
      const pages = new Map<string, Promise<SmallPage>>();
      const results = queries.map((query) => {
        const key = JSON.stringify(query);
        const page = pages.get(key) ?? readOnAllShards(query, counting);
        pages.set(key, page);
        return page;
      });
      await Promise.allSettled(results);
      return results;
    },
    maxItems: MAX_SHARED,
  });

  /** @returns `null` if the page exceeds 256 KiB */
  async function readSmall(
    query: PageQuery,
    values: readonly Value[],
    client?: string,
  ): Promise<Page | null> {
    const { total, rows } = list.valuesOf
      ? await readOnOneShard(query, values, client)
      : await db.limiter.admit("list", () => enqueue(query), client);
    const joined = joinRecords(rows, query.limit);
    const { records } = joined;
    if (query.after !== undefined) return { total, records, nextAfter: nextAfter(joined) };
    // Orders may have been placed between the two statements.
    const seen = rows.length === 0 ? 0 : query.offset + Math.min(rows.length, query.limit);
    return { total: Math.max(total, seen), records, nextAfter: null };
  }

  const bounds = list.maxOffset === null ? {} : { maxOffset: list.maxOffset };

  return async (query, client) => {
    const values = list.valuesOf?.(query) ?? [];
    const small = query.limit <= SLICE_ROWS ? await readSmall(query, values, client) : null;
    if (small !== null) return { ...small, ...bounds };
    const readPage = (session: Session) => readSlices(session, query, values);
    return { ...(await buildInSlices(db, { query, readSlices: readPage })), ...bounds };
  };
}
