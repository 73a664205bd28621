import { type Static, type TObject, Type } from "@sinclair/typebox";
import { OneOf, SafeInteger } from "./schema.ts";

/** Maximum size of a page, as the body of a response. */
export const MAX_PAGE_BYTES = 16 * 2 ** 20;
/** Larger pages are built and sent in slices. */
export const LARGE_PAGE_BYTES = 256 * 2 ** 10;

/** Encoded records that have not been sent yet. Disposing of it discards the rest. */
export interface Chunks extends Disposable {
  /** @returns the next bytes, which stay valid until the next call; `null` at the end */
  next(): Uint8Array | null;
}

/** @returns all records of a page as text. They can be read once */
export function recordsText(records: string | Chunks): string {
  if (typeof records === "string") return records;
  const decoder = new TextDecoder();
  let text = "";
  for (let chunk = records.next(); chunk !== null; chunk = records.next()) {
    text += decoder.decode(chunk, { stream: true });
  }
  return text;
}

/** One page of a list. Its records and its total come from one snapshot. */
export interface Page {
  /** Exact number of records that match the filters. */
  readonly total: number;
  /** Comma-separated JSON: a string, or chunks if it exceeds 256 KiB. */
  readonly records: string | Chunks;
  /** The cursor of the next page; `null` if there is no next page or the query has no `after`. */
  readonly nextAfter: number | null;
  /** The largest offset that a page of the list may have. By default, there is no limit. */
  readonly maxOffset?: number;
}

/** The part of a page that has been read. */
export interface PageEnd {
  /** Id of the last record; 0 if there is none. */
  readonly lastId: number;
  /** Whether a record follows. Only known if one more row was read. */
  readonly hasMore: boolean;
}

/** @returns how many rows to read: with `after` one more than the limit, which shows whether there is a next page */
export function rowsToRead({ limit, after }: PageQuery): number {
  return after === undefined ? limit : limit + 1;
}

/** @returns the largest id that a page by descending ids may have */
export function maxId({ after = 0 }: Pick<PageQuery, "after">): number {
  return after === 0 ? Number.MAX_SAFE_INTEGER : after - 1;
}

/** @returns whether a record with this id is after the id `after` */
export function isAfter(id: number, query: PageQuery): boolean {
  return query.sort === "-id" ? id <= maxId(query) : id > (query.after ?? 0);
}

export function nextAfter({ lastId, hasMore }: PageEnd): number | null {
  return hasMore ? lastId : null;
}

/** A record of a list as JSON, which the database builds: one text costs less to read than many columns. */
export interface JsonRow {
  readonly id: number;
  readonly json: string;
}

/**
 * Joins the records of a small page.
 * @param rows read only until the limit or 256 KiB is exceeded, or until a `null`: reading on would take long
 * @returns the records as comma-separated JSON; `null` if that exceeds 256 KiB or takes long
 */
export function joinSmall(
  rows: Iterable<JsonRow | null>,
  limit: number,
): (PageEnd & { readonly records: string }) | null {
  let records = "";
  let count = 0;
  let lastId = 0;
  let hasMore = false;
  for (const row of rows) {
    if (row === null) return null;
    if (count === limit) {
      hasMore = true;
      break;
    }
    records = count === 0 ? row.json : `${records},${row.json}`;
    // A UTF-16 code unit takes 1 to 3 bytes in UTF-8.
    if (records.length > LARGE_PAGE_BYTES) return null;
    count += 1;
    lastId = row.id;
  }
  const fits =
    3 * records.length <= LARGE_PAGE_BYTES || Buffer.byteLength(records) <= LARGE_PAGE_BYTES;
  return fits ? { records, lastId, hasMore } : null;
}

/** Ascending and descending ids. */
export const sorts = ["id", "-id"] as const;
export type Sort = (typeof sorts)[number];

/**
 * Parameters of every list: at most `limit` records, after skipping `offset` records or after the id `after`. A
 * record with that id need not exist, and 0 is before the first record. `sort` is `id` unless it is `-id`, by which
 * ids descend.
 */
export const pageQuery = {
  limit: Type.Integer({ minimum: 1, maximum: 1000, default: 50 }),
  offset: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 }),
  after: Type.Optional(SafeInteger(0)),
  sort: Type.Optional(OneOf(sorts)),
};

export type PageQuery = Static<TObject<typeof pageQuery>>;

/**
 * @returns the offsets of the pages around one page; `null` if that page does not exist. Past the end, `prev` is the
 * last page, so that clients get back to records
 */
export function pageOffsets({ limit, offset }: PageQuery, total: number) {
  const last = total === 0 ? 0 : Math.floor((total - 1) / limit) * limit;
  return {
    prev: offset === 0 ? null : Math.min(Math.max(0, offset - limit), last),
    next: total - offset > limit ? offset + limit : null,
    last,
  };
}
