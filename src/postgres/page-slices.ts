/** Large pages. Each is read in slices, because Bun.SQL keeps a whole result in memory. */
import { fail } from "../error.ts";
import type { BuiltPage, PageBuilder } from "../large-page.ts";
import { type JsonRow, nextAfter, type Page, type PageQuery } from "../page.ts";
import type { Session } from "./connection.ts";
import type { StoreContext } from "./context.ts";

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
  /** Who reads the page; `undefined` for the process itself. */
  readonly client: string | undefined;
  /** Lower bound of the size of its records as JSON, in bytes; 0 if unknown. */
  readonly bytes: number;
  /** Reads the page from its beginning. */
  readonly readSlices: (session: Session) => AsyncIterable<Slice>;
}

/**
 * Builds a large page in one snapshot. It does not wait behind pages of other clients, because other large pages wait
 * for it.
 * @throws {AppError} validation_failed if the page exceeds 16 MiB; unavailable if it takes too long to read, or the database is
 * unreachable or busy
 */
export function buildInSlices(
  { db, largePages }: Pick<StoreContext, "db" | "largePages">,
  { query, client, bytes, readSlices }: LargePageParts,
): Promise<Page> {
  async function addSlices(session: Session, page: PageBuilder): Promise<BuiltPage> {
    // It is not empty after a failed attempt.
    page.clear();
    page.reserve(bytes);
    const deadlineMs = performance.now() + LARGE_PAGE_TIMEOUT_MS;
    let missing = query.limit;
    let lastId = 0;
    let built: BuiltPage = { total: 0, nextAfter: null };
    for await (const { total, rows, isLast } of readSlices(session)) {
      const added = rows.slice(0, missing);
      page.add(added.map(({ json }) => json));
      missing -= added.length;
      // The last slice may have only the row that follows the page.
      lastId = added.at(-1)?.id ?? lastId;
      const hasMore = rows.length > added.length;
      built = { total, nextAfter: nextAfter({ lastId, hasMore }) };
      if (!isLast && performance.now() > deadlineMs) {
        fail("unavailable", "the page takes too long to read");
      }
    }
    return built;
  }

  return largePages.build(
    (page) =>
      db.run("list", (session) => addSlices(session, page), {
        transaction: true,
        client: CLIENT,
        timeoutMs: NO_RESPONSE_TIMEOUT_MS,
      }),
    client,
  );
}
