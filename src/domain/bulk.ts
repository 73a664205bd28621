/** The port of import. */

export type ImportResult =
  | { readonly outcome: "created" }
  /** The record exists with the same content, so that an import can be repeated. */
  | { readonly outcome: "unchanged" }
  /** `reason` is worded like a validation error of the API. */
  | { readonly outcome: "rejected"; readonly reason: string };

/** Import into one table. */
export interface BulkStore<Import> {
  /**
   * Stores records with their ids, versions and times. Records without an id get new ones. A rejected record
   * does not affect the others. The call is one transaction.
   * @param dryRun returns the results without writing, as if earlier calls had written theirs
   * @returns the result of each record in the same order, after the records are on disk
   * @throws {AppError} unavailable if the database cannot be written; then no record is stored
   */
  import(records: readonly Import[], dryRun: boolean): Promise<readonly ImportResult[]>;
}
