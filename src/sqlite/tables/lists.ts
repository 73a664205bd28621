/** A page of a list, read at once in the snapshot of the current turn. */
import { type JsonRow, joinRecords } from "../../domain/page.ts";

/** A list that is being read, within a transaction. */
export interface ListRows {
  readonly total: number;
  /** Iterating reads the rows: as many as the page has, and one more if the query has `after`. */
  readonly rows: Iterable<JsonRow>;
}

/** @throws {AppError} as `joinRecords` */
export function pageOf<List extends ListRows>(
  { rows, ...all }: List,
  limit: number,
  room: () => number | undefined,
) {
  return { ...all, ...joinRecords(rows, limit, room) };
}
