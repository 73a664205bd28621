import { createImportRun, type ImportRun } from "./import-run.ts";

export type ImportResult =
  /** `unchanged`: it exists with the same content. `erased`: its user was erased, and with `update` it stays as it is. */
  | { readonly outcome: "created" | "updated" | "unchanged" | "erased" }
  /** `reason` is worded like a validation error of the API. */
  | { readonly outcome: "rejected"; readonly reason: string };

export interface ImportOptions {
  readonly update?: boolean;
  readonly dryRun?: boolean;
  /** Items of the same quantities and prices keep what is stored: otherwise an order with a renamed product is rejected. */
  readonly keepItems?: boolean;
  /** What earlier batches of the same file were. By default, there are none. */
  readonly run?: ImportRun;
  /** Of the records, in the file. By default from 1. */
  readonly lines?: readonly number[];
}

export interface BulkStore<Import> {
  /**
   * Stores records with their ids, versions and times. Records without an id get new ones. A record that exists with other
   * content is rejected, or with `update` becomes as the given one, with a new version. A rejected record does not affect
   * the others. Records of one run that are the same record, or would have the same key, must be equal: otherwise these are
   * rejected, unless they are in an earlier batch. The call is one transaction.
   * @param options with `dryRun`, it returns the results without writing, as if earlier batches of the run were stored
   * @returns the result of each record in the same order, after the records are on disk
   * @throws {AppError} unavailable if the database cannot be written; then no record is stored
   */
  import(records: readonly Import[], options?: ImportOptions): Promise<readonly ImportResult[]>;
}

/** @returns a function that imports records of one run */
export function createImporter<Given>(bulk: BulkStore<Given>, given: ImportOptions) {
  const options = { ...given, run: createImportRun() };
  let line = 0;
  return (records: readonly Given[]) =>
    bulk.import(records, { ...options, lines: records.map(() => ++line) });
}
