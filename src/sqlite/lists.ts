/**
 * Reads pages as JSON: small ones in the snapshot of the current turn, those that are large or take long in a snapshot
 * of their own.
 */
import type { Database } from "bun:sqlite";
import { endTurn } from "../end-turn.ts";
import type { LargePages, PageBuilder } from "../large-page.ts";
import type { Maybe } from "../maybe.ts";
import {
  type JsonRow,
  joinSmall,
  nextAfter,
  type Page,
  type PageEnd,
  type PageQuery,
} from "../page.ts";
import { concatenated } from "./connection.ts";
import { isStorageError, storageError } from "./errors.ts";
import type { FileWatch } from "./file-watch.ts";
import { lazily } from "./lazily.ts";
import type { Reader } from "./reader.ts";

/** Characters of a large page that are read in one turn of the event loop. A busy loop has longer slices. */
const SLICE_LENGTH = 128 * 2 ** 10;
/**
 * Maximum time of a slice. Up to this time, it takes as long as everything else took in the turn before, so that a page
 * gets half of the time of a busy loop: otherwise many cheap requests could delay it for minutes.
 */
const MAX_SLICE_MS = 50;

/** What a page has besides its records. */
interface Totals {
  readonly total: number;
}

/** A list that is being read. */
export interface ListRows<Row, Meta extends Totals = Totals> {
  /** Final once the rows have been read. */
  readonly meta: Meta;
  /**
   * Iterating reads the rows: as many as the page has, and one more if the query has `after`. A `null` is a place to
   * end the turn, in a list that takes long to read.
   */
  readonly rows: Iterable<Row | null>;
}

/** Reads a list within a transaction. */
export type ReadRows<Query, Row, Meta extends Totals = Totals> = (
  query: Query,
) => ListRows<Row, Meta>;

interface SizeRow {
  readonly id: number;
  /** Upper bound of its size as JSON. */
  readonly bytes: number;
}

export interface List<Query, Meta extends Totals = Totals> {
  readonly table: string;
  /** The parts of a record as JSON, from the columns of the table. @see concatenated */
  readonly json: readonly string[];
  /** Upper bound of the size of a record as JSON, in bytes, from the columns of the table, without reading long ones. */
  readonly bytes: string;
  /**
   * Called once per connection and kind of rows.
   * @param columns of the rows; the first one is the id
   */
  readonly prepareRows: <Row extends { readonly id: number }>(
    db: Database,
    columns: string,
  ) => ReadRows<Query, Row, Meta>;
}

export type ListReader = ReturnType<typeof createListReader>;

/** @returns a function to call between two slices. It ends the turn when the time of the slice is over */
function createPacer(): () => Promise<void> {
  let sliceEndMs = 0;
  return async () => {
    const endedMs = performance.now();
    if (endedMs < sliceEndMs) return;
    await endTurn();
    const startedMs = performance.now();
    sliceEndMs = startedMs + Math.min(startedMs - endedMs, MAX_SLICE_MS);
  };
}

async function addInSlices(
  page: PageBuilder,
  rows: ListRows<JsonRow>["rows"],
  limit: number,
): Promise<PageEnd> {
  const pace = createPacer();
  let slice: string[] = [];
  let length = 0;
  let count = 0;
  let lastId = 0;
  let hasMore = false;
  for (const row of rows) {
    if (row !== null) {
      if (count === limit) {
        hasMore = true;
        break;
      }
      slice.push(row.json);
      length += row.json.length;
      count += 1;
      lastId = row.id;
      if (length < SLICE_LENGTH) continue;
    }
    page.add(slice);
    slice = [];
    length = 0;
    await pace();
  }
  page.add(slice);
  return { lastId, hasMore };
}

/** @returns the size of the records with their commas */
async function sumOf(sizes: ListRows<SizeRow>["rows"]): Promise<number> {
  const pace = createPacer();
  let sum = 0;
  for (const row of sizes) {
    if (row === null) await pace();
    else sum += row.bytes + 1;
  }
  return sum;
}

/**
 * @param own a connection that keeps a snapshot over several turns. That of the writer cannot, because it also
 * writes.
 */
export function createListReader(
  db: Database,
  own: Database,
  reader: Reader,
  files: FileWatch,
  large: LargePages,
) {
  own.run("pragma query_only = on");
  // Waiting for a lock would block the event loop.
  own.run("pragma busy_timeout = 0");

  return {
    /** @returns reads a page, in the same turn if it is small and does not take long */
    prepare<Query extends PageQuery, Meta extends Totals = Totals>({
      table,
      json,
      bytes,
      prepareRows,
    }: List<Query, Meta>): (query: Query, client?: string) => Maybe<Page & Meta> {
      const columns = `id, ${concatenated(db, json)} as json`;
      const readRows = prepareRows<JsonRow>(db, columns);
      const ownRows = lazily(() => prepareRows<JsonRow>(own, columns));
      const ownSizes = lazily(() => prepareRows<SizeRow>(own, `id, ${bytes} as bytes`));

      function readSmall(query: Query) {
        const { meta, rows } = readRows(query);
        const joined = joinSmall(rows, query.limit);
        if (joined === null) return null;
        return { ...meta, nextAfter: nextAfter(joined), records: joined.records };
      }

      async function addAll(query: Query, page: PageBuilder) {
        page.clear();
        own.run("begin");
        try {
          page.reserve(await sumOf(ownSizes()(query).rows));
          const { meta, rows } = ownRows()(query);
          const end = await addInSlices(page, rows, query.limit);
          return { ...meta, nextAfter: nextAfter(end) };
        } finally {
          // Not `commit`, because SQLite rejects it after a read has met damage.
          if (own.inTransaction) own.run("rollback");
        }
      }

      /** Tries twice, like `Reader.read`. */
      async function buildLarge(query: Query, page: PageBuilder) {
        try {
          return await addAll(query, page);
        } catch (error) {
          if (!isStorageError(error)) throw error;
        }
        try {
          return await addAll(query, page);
        } catch (error) {
          throw storageError(error, { db: own, verb: "read", table, isReadable: files.isReadable });
        }
      }

      return (query, client) =>
        reader.read(table, () => readSmall(query)) ??
        large.build((page) => buildLarge(query, page), client);
    },
  };
}
