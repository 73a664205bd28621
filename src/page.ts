import { type Static, type TInteger, Type } from "@sinclair/typebox";
import { no_extra_fields } from "./schema.ts";

/** The largest page, as the body of a response. */
export const MAX_PAGE_BYTES = 16 * 2 ** 20;
/** A larger page is built and sent in slices. */
export const LARGE_PAGE_BYTES = 256 * 2 ** 10;

/** Encoded records that have not been sent. Disposing of it discards the rest. */
export interface Chunks extends Disposable {
  /** @returns the next bytes, which stay valid until the next call; `null` at the end */
  next(): Uint8Array | null;
}

/** One page of a list. Its records and its total come from one snapshot. */
export interface Page {
  /** How many records the filters match, exactly. */
  readonly total: number;
  /** JSON, comma-separated: as text, or in chunks if it is longer than 256 KiB. */
  readonly records: string | Chunks;
  /** The cursor of the next page: `null` if there is none, and without `after` in the query. */
  readonly next_after: number | null;
}

/** The part of a page that has been read. */
export interface PageEnd {
  /** Id of the last record; 0 if there is none. */
  readonly last_id: number;
  /** Whether a record follows, as far as one more was read. */
  readonly has_more: boolean;
}

/** How many rows to read: one more than the page has if only that tells whether there is a next page. */
export function rowsToRead({ limit, after }: PageQuery): number {
  return after === undefined ? limit : limit + 1;
}

export function nextAfter({ last_id, has_more }: PageEnd): number | null {
  return has_more ? last_id : null;
}

/**
 * @param rows read only until the limit or 256 KiB is exceeded
 * @returns the JSON of a page, comma-separated; `null` if that exceeds 256 KiB
 */
export function joinSmall<Row extends { readonly id: number }>(
  rows: Iterable<Row>,
  limit: number,
  toJson: (row: Row) => string,
): (PageEnd & { readonly records: string }) | null {
  let records = "";
  let count = 0;
  let last_id = 0;
  let has_more = false;
  for (const row of rows) {
    if (count === limit) {
      has_more = true;
      break;
    }
    records = count === 0 ? toJson(row) : `${records},${toJson(row)}`;
    // No UTF-16 unit takes less than one byte, and none more than three.
    if (records.length > LARGE_PAGE_BYTES) return null;
    count += 1;
    last_id = row.id;
  }
  const fits =
    3 * records.length <= LARGE_PAGE_BYTES || Buffer.byteLength(records) <= LARGE_PAGE_BYTES;
  return fits ? { records, last_id, has_more } : null;
}

/**
 * What every list takes: at most `limit` records, behind `offset` skipped ones or behind the id `after`,
 * whether or not a record has this id.
 */
export const page_query = {
  limit: Type.Integer({ minimum: 1, maximum: 1000, default: 50 }),
  offset: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 }),
  after: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
} satisfies Record<string, TInteger>;

export const PageQuery = Type.Object(page_query, no_extra_fields);
export type PageQuery = Static<typeof PageQuery>;

/** The offsets of the pages around one page; `null` where there is no such page. */
export interface PageOffsets {
  readonly first: number;
  readonly prev: number | null;
  readonly next: number | null;
  readonly last: number;
}

/** Past the end, `prev` is the last page: the way back to rows. */
export function pageOffsets({ limit, offset }: PageQuery, total: number): PageOffsets {
  const last = total === 0 ? 0 : Math.floor((total - 1) / limit) * limit;
  return {
    first: 0,
    prev: offset === 0 ? null : Math.min(Math.max(0, offset - limit), last),
    next: total - offset > limit ? offset + limit : null,
    last,
  };
}
