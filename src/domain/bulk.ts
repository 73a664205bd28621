/** The port of export and import. */
import type { Sort } from "./page.ts";

export type ImportResult =
  | { readonly outcome: "created" }
  /** The record exists with the same content, so that an import can be repeated. */
  | { readonly outcome: "unchanged" }
  /** `reason` is worded like a validation error of the API. */
  | { readonly outcome: "rejected"; readonly reason: string };

/** Export and import of one table. Every method is one transaction. */
export interface BulkStore<Row, Import> {
  /**
   * The next page in the order of `sort`, after the id `after`; 0 starts at the beginning of that order. Paging to the end
   * returns every record that exists throughout exactly once. Records that are created or deleted meanwhile may be
   * missing.
   */
  exportPage(after: number, limit: number, sort: Sort): Promise<readonly Row[]>;
  /**
   * Stores records with their ids, versions and times. Records without an id get new ones. A rejected record
   * does not affect the others.
   * @param dryRun returns the results without writing, as if earlier calls had written theirs
   * @returns the result of each record in the same order, after the records are on disk
   * @throws {AppError} unavailable if the database cannot be written; then no record is stored
   */
  import(records: readonly Import[], dryRun: boolean): Promise<readonly ImportResult[]>;
}
