/** A page of a list, read at once in the snapshot of the current turn. */
import { type JsonRow, joinRecords, type Page } from "../../domain/page.ts";

/** What a page has besides its records. */
type Totals = Pick<Page, "total">;

/** A list that is being read, within a transaction. */
export interface ListRows<Meta extends Totals = Totals> {
  readonly meta: Meta;
  /** Iterating reads the rows: as many as the page has, and one more if the query has `after`. */
  readonly rows: Iterable<JsonRow>;
}

/** @throws {AppError} as `joinRecords` */
export function pageOf<Meta extends Totals>(
  { meta, rows }: ListRows<Meta>,
  limit: number,
): Page & Meta {
  return { ...meta, ...joinRecords(rows, limit) };
}
