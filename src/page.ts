import { type Static, type TInteger, Type } from "@sinclair/typebox";
import { closed } from "./schema.ts";

/** Rows of one page, and how many rows the filters match in all, from one snapshot. */
export interface Page<Row> {
  readonly rows: readonly Row[];
  readonly total: number;
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
