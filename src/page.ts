import { type Static, type TInteger, Type } from "@sinclair/typebox";
import { closed } from "./schema.ts";

/** The largest page, as the body of a response. */
export const MAX_PAGE_BYTES = 16 * 2 ** 20;
/** A larger page is built and sent in slices. */
export const LARGE_PAGE_BYTES = 256 * 2 ** 10;

/** Encoded records that have not been sent. Disposing of it gives up the rest. */
export interface Chunks extends Disposable {
  /** Of all records, with the commas between them. */
  readonly bytes: number;
  /** @returns the next bytes, which stay valid until the next call; `null` at the end */
  next(): Uint8Array | null;
}

/** One page of a list. Its records and its total come from one snapshot. */
export interface Page {
  /** How many records the filters match, exactly. */
  readonly total: number;
  /** JSON, comma-separated: as text, or in chunks if it is longer than 256 KiB. */
  readonly records: string | Chunks;
}

/**
 * @param rows are not read further than they fit
 * @returns their JSON, comma-separated; `null` if that exceeds 256 KiB
 */
export function joinSmall<Row>(rows: Iterable<Row>, toJson: (row: Row) => string): string | null {
  let joined = "";
  for (const row of rows) {
    joined = joined === "" ? toJson(row) : `${joined},${toJson(row)}`;
    // No UTF-16 unit takes less than one byte, and none more than three.
    if (joined.length > LARGE_PAGE_BYTES) return null;
  }
  const fits =
    3 * joined.length <= LARGE_PAGE_BYTES || Buffer.byteLength(joined) <= LARGE_PAGE_BYTES;
  return fits ? joined : null;
}

/** What every list takes: `limit` rows at most, after `offset` skipped ones. */
export const page_query = {
  limit: Type.Integer({ minimum: 1, maximum: 1000, default: 50 }),
  offset: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 }),
} satisfies Record<string, TInteger>;

export const PageQuery = Type.Object(page_query, closed);
export type PageQuery = Static<typeof PageQuery>;

/** The offsets of the pages around one page; `null` where there is no such page. */
export interface Neighbours {
  readonly first: number;
  readonly prev: number | null;
  readonly next: number | null;
  readonly last: number;
}

/** Past the end, `prev` is the last page: the way back to rows. */
export function neighbours({ limit, offset }: PageQuery, total: number): Neighbours {
  const last = total === 0 ? 0 : Math.floor((total - 1) / limit) * limit;
  return {
    first: 0,
    prev: offset === 0 ? null : Math.min(Math.max(0, offset - limit), last),
    next: total - offset > limit ? offset + limit : null,
    last,
  };
}
