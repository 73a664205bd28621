import { type Static, Type } from "@sinclair/typebox";
import { AppError, fail } from "../base/error.ts";
import { Closed, Id, OneOf, Parameter, SafeInteger } from "../base/schema.ts";
import { ReferenceText } from "./record.ts";
import type { ClientId } from "./token.ts";

/** Maximum size of the records of a page, with their commas. The whole page has at most 4 MiB. */
export const MAX_PAGE_BYTES = 4 * 2 ** 20 - 256;
/** So many records of any size always fit in a page. */
export const ALWAYS_FITTING = 50;
/** A page that is larger can be rejected as unavailable. */
export const LARGE_PAGE_BYTES = 256 * 2 ** 10;

/** Bounds the pages that are built by those that clients have not read yet. */
export interface PageMemory {
  /** @returns how many bytes a page may have: `MAX_PAGE_BYTES` or, if there is no room for that, `LARGE_PAGE_BYTES` */
  room(client?: ClientId): number;
  /** Counts a page while it is built. @returns a function that releases it; `null` if only `LARGE_PAGE_BYTES` fit */
  hold(client: ClientId | undefined, records: number): (() => void) | null;
}

export const NO_ROOM = "too many large pages are being built or unsent: request a smaller page";

/** One page of a list. Its records and its total come from one snapshot. */
export interface Page {
  readonly total: number;
  /** Comma-separated JSON of at most `MAX_PAGE_BYTES`. */
  readonly records: string;
  /** The cursor of the next page; `null` if there is no next page or the query has no `after`. */
  readonly nextAfter: number | null;
  /** The largest offset that a page of the list may have. By default, there is no limit. */
  readonly maxOffset?: number;
}

/** @returns how many rows to read: with `after` one more than the limit, which shows whether there is a next page */
export function rowsToRead({ limit, after }: PageQuery): number {
  return after === undefined ? limit : limit + 1;
}

export function maxId({ after = 0 }: Pick<PageQuery, "after">): number {
  return after === 0 ? Number.MAX_SAFE_INTEGER : after - 1;
}

export interface JsonRow {
  readonly id: number;
  readonly json: string;
}

/** @throws {AppError} unavailable if there was no room for a larger page, otherwise validation_failed */
export function failPageTooLarge(maxBytes: number): never {
  if (maxBytes < MAX_PAGE_BYTES) fail("unavailable", NO_ROOM);
  const problem = `must be at most ${ALWAYS_FITTING} here, since the page would exceed 4 MiB`;
  throw new AppError("validation_failed", `Validation failed: limit ${problem}`, {
    problems: [{ field: "limit", code: "range", problem, min: 1, max: ALWAYS_FITTING }],
    allowed: { limit: ALWAYS_FITTING },
  });
}

/**
 * @param rows as many as {@link rowsToRead} says; read only until the limit or the maximum size is exceeded
 * @param room returns the maximum size of the records. It is called if they exceed `LARGE_PAGE_BYTES`
 * @returns `nextAfter` is `null` unless a row follows the last record
 * @throws {AppError} validation_failed if the page exceeds 4 MiB; unavailable if it exceeds a smaller `room`
 */
export function joinRecords(
  rows: Iterable<JsonRow>,
  limit: number,
  room: () => number | undefined = () => MAX_PAGE_BYTES,
): Pick<Page, "records" | "nextAfter"> {
  let records = "";
  let bytes = 0;
  let isShort = true;
  let maxBytes = LARGE_PAGE_BYTES;
  let count = 0;
  let lastId = 0;
  for (const { id, json } of rows) {
    if (count === limit) return { records, nextAfter: lastId };
    // A UTF-16 code unit takes 1 to 3 bytes in UTF-8. Counting them takes as long as joining.
    bytes += isShort ? 3 * json.length + 1 : Buffer.byteLength(json) + 1;
    if (isShort && bytes > maxBytes) {
      isShort = false;
      bytes = Buffer.byteLength(count === 0 ? json : `${records},${json}`) + 1;
    }
    // The last record has no comma.
    if (bytes - 1 > maxBytes) maxBytes = room() ?? MAX_PAGE_BYTES;
    if (bytes - 1 > maxBytes) failPageTooLarge(maxBytes);
    // JavaScriptCore joins the parts once, with the rest of the response.
    records = count === 0 ? json : `${records},${json}`;
    count += 1;
    lastId = id;
  }
  return { records, nextAfter: null };
}

export const sorts = ["id", "-id"] as const;
export type Sort = (typeof sorts)[number];

export const pageQuery = {
  limit: Type.Integer({
    minimum: 1,
    maximum: 1000,
    default: 50,
    description: "The maximum number of records in the page, by default 50",
  }),
  offset: Type.Integer({
    minimum: 0,
    maximum: Number.MAX_SAFE_INTEGER,
    default: 0,
    description: "The number of records to skip, by default 0",
  }),
  after: Parameter(
    SafeInteger(0),
    "Only records that follow this id in the order of `sort`; 0 is before the first record. The record with this id need not exist. The cost is the same at any depth. Cannot be combined with `offset`",
  ),
  sort: Parameter(OneOf(sorts), "The order: by `id`, which is the default, or the newest first"),
};

export const PageQuery = Closed(pageQuery);
export type PageQuery = Static<typeof PageQuery>;

/** Maximum number of ids that a list can select, and its default `limit` then. */
export const MAX_IDS = 100;

/** Filters of users and of orders. Each selects few records, which are found by it. */
export const recordFilters = {
  id: Parameter(
    Type.Array(Id, { minItems: 1, maxItems: MAX_IDS }),
    `Only records with these ids, as far as they exist: at most ${MAX_IDS}, which is the default of \`limit\` then`,
  ),
  reference: Parameter(ReferenceText, "Only the record with this reference"),
};

/** @returns those of the page, as many as {@link rowsToRead} says. @param rows all that the query matches, in any order */
export function rowsOfPage<Row extends { readonly id: number }>(
  rows: readonly Row[],
  query: PageQuery,
): readonly Row[] {
  const { sort, after = 0 } = query;
  const sign = sort === "-id" ? -1 : 1;
  return rows
    .filter(({ id }) => (sort === "-id" ? id <= maxId(query) : id > after))
    .sort((one, other) => sign * (one.id - other.id))
    .slice(query.offset, query.offset + rowsToRead(query));
}

/** Past the end, `prev` is the last page, so that clients get back to records. `null` if a page does not exist. */
export function pageOffsets({ limit, offset }: PageQuery, total: number) {
  const last = total === 0 ? 0 : Math.floor((total - 1) / limit) * limit;
  return {
    prev: offset === 0 ? null : Math.min(Math.max(0, offset - limit), last),
    next: total - offset > limit ? offset + limit : null,
    last,
  };
}
