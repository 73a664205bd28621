/** Large pages. Each is read in slices, because Bun.SQL keeps a whole result in memory. */
import { fail } from "../error.ts";
import { type JsonRow, joinRecords, nextAfter, type Page, type PageQuery } from "../page.ts";
import type { Database, Session } from "./connection.ts";

/**
 * Timeout for a large page, checked between two slices. Each slice also has the statement timeout. It is much
 * shorter than the timeout in the limiter.
 */
const LARGE_PAGE_TIMEOUT_MS = 20_000;
/** Timeout in the limiter. Only a server that does not respond at all reaches it. */
const NO_RESPONSE_TIMEOUT_MS = 60_000;
/** All large pages are one client: one of them is read at a time, and small pages do not wait for it. */
const CLIENT = "large pages";

export interface Slice {
  /** Exact number of records that match the filters. */
  readonly total: number;
  /** The next rows. With `after`, the last slice has one row more than the page if there is a next page. */
  readonly rows: readonly JsonRow[];
  readonly isLast: boolean;
}

export interface LargePageParts {
  readonly query: PageQuery;
  /** Reads the page from its beginning. */
  readonly readSlices: (session: Session) => AsyncIterable<Slice>;
}

/**
 * Reads a large page in one snapshot.
 * @throws {AppError} validation_failed if the page exceeds 4 MiB; unavailable if it takes too long to read, or the
 * database is unreachable or busy
 */
export function buildInSlices(db: Database, { query, readSlices }: LargePageParts): Promise<Page> {
  async function read(session: Session): Promise<Page> {
    const deadlineMs = performance.now() + LARGE_PAGE_TIMEOUT_MS;
    const all: JsonRow[] = [];
    let total = 0;
    for await (const slice of readSlices(session)) {
      ({ total } = slice);
      all.push(...slice.rows);
      // It fails as soon as the page is too large.
      joinRecords(all, query.limit);
      if (!slice.isLast && performance.now() > deadlineMs) {
        fail("unavailable", "the page takes too long to read");
      }
    }
    const joined = joinRecords(all, query.limit);
    return { total, records: joined.records, nextAfter: nextAfter(joined) };
  }
  return db.run("list", read, {
    transaction: true,
    client: CLIENT,
    timeoutMs: NO_RESPONSE_TIMEOUT_MS,
  });
}
