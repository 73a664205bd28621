/** Reads the few records of a list that filters select, of which one is unique. */
import {
  type JsonRow,
  joinRecords,
  type Page,
  type PageQuery,
  rowsOfPage,
} from "../../domain/page.ts";
import type { StoreContext } from "../engine/context.ts";
import type { Session } from "../server/connection.ts";
import type { Filters } from "../server/placement.ts";

/**
 * @param find returns the records that match, in any order
 * @returns a function that reads a page
 * @throws {AppError} by its result: validation_failed if the page exceeds 4 MiB
 */
export function prepareFew(
  { db }: StoreContext,
  find: (session: Session, filters: Filters) => Promise<readonly JsonRow[]>,
) {
  return async (filters: Filters, query: PageQuery, client?: string): Promise<Page> => {
    const rows = await db.run("list", (session) => find(session, filters), { client });
    return { total: rows.length, ...joinRecords(rowsOfPage(rows, query), query.limit) };
  };
}
