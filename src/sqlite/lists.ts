/** Reads pages as JSON: small ones in the snapshot of the current turn, large ones in a snapshot of their own. */
import type { Database } from "bun:sqlite";
import { setImmediate as endTurn } from "node:timers/promises";
import type { BuiltPage, LargePages, PageBuilder } from "../large-page.ts";
import type { Maybe } from "../maybe.ts";
import {
  type JsonRow,
  joinSmall,
  nextAfter,
  type Page,
  type PageEnd,
  type PageQuery,
} from "../page.ts";
import { isStorageError, storageError } from "./errors.ts";
import type { FileWatch } from "./file-watch.ts";
import type { Reader } from "./reader.ts";

/** Characters of a large page that are read in one turn of the event loop. */
const SLICE_LENGTH = 128 * 2 ** 10;

/**
 * Reads a list within a transaction. Iterating reads the rows: as many as the page has, and one more if the query
 * has `after`.
 */
export type ReadRows<Query> = (query: Query) => {
  readonly total: number;
  readonly rows: Iterable<JsonRow>;
};

export type ListReader = ReturnType<typeof createListReader>;

async function addInSlices(
  page: PageBuilder,
  rows: Iterable<JsonRow>,
  limit: number,
): Promise<PageEnd> {
  let slice: string[] = [];
  let length = 0;
  let count = 0;
  let lastId = 0;
  let hasMore = false;
  for (const { id, json } of rows) {
    if (count === limit) {
      hasMore = true;
      break;
    }
    slice.push(json);
    length += json.length;
    count += 1;
    lastId = id;
    if (length < SLICE_LENGTH) continue;
    page.add(slice);
    await endTurn();
    slice = [];
    length = 0;
  }
  page.add(slice);
  return { lastId, hasMore };
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
    /**
     * @param table table of the list, for error messages
     * @param prepareRows called once per connection
     * @returns reads a page, in the same turn if it is small
     */
    prepare<Query extends PageQuery>(
      table: string,
      prepareRows: (db: Database) => ReadRows<Query>,
    ): (query: Query, client?: string) => Maybe<Page> {
      const { read } = reader.forTable(table);
      const readRows = prepareRows(db);
      let readOwnRows: ReadRows<Query> | null = null;

      function readSmall(query: Query): Page | null {
        const { total, rows } = readRows(query);
        const joined = joinSmall(rows, query.limit);
        if (joined === null) return null;
        return { total, records: joined.records, nextAfter: nextAfter(joined) };
      }

      async function addAll(query: Query, page: PageBuilder): Promise<BuiltPage> {
        readOwnRows ??= prepareRows(own);
        page.clear();
        own.run("begin");
        try {
          const { total, rows } = readOwnRows(query);
          const end = await addInSlices(page, rows, query.limit);
          return { total, nextAfter: nextAfter(end) };
        } finally {
          // Not `commit`, because SQLite rejects it after a read has met damage.
          if (own.inTransaction) own.run("rollback");
        }
      }

      /** Tries twice, like `TableReader.read`. */
      async function buildLarge(query: Query, page: PageBuilder): Promise<BuiltPage> {
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
        read<[Query], Page | null>(readSmall, query) ??
        large.build((page) => buildLarge(query, page), client);
    },
  };
}
