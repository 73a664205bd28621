/** How a whole table comes out, record by record, and goes in again. */

/** What became of one record of an import. */
export type ImportResult =
  | { readonly outcome: "created" }
  /** It was there already, the same in all that was given: so an import can be run again. */
  | { readonly outcome: "unchanged" }
  /** `reason` is a sentence as in a refusal to a client. */
  | { readonly outcome: "rejected"; readonly reason: string };

export const created: ImportResult = { outcome: "created" };
export const unchanged: ImportResult = { outcome: "unchanged" };

export function rejected(reason: string): ImportResult {
  return { outcome: "rejected", reason };
}

/**
 * How far beyond the last one an id may lie: SQLite has to count all that is left out, in a transaction that
 * others wait for. So many take 0.2 s.
 */
const MAX_ID_GAP = 2 ** 24;

/** @returns why this id cannot be taken; `null` when it can */
export function checkIdGap(id: number, last: number): ImportResult | null {
  if (id <= last + MAX_ID_GAP) return null;
  return rejected(`id must be at most ${MAX_ID_GAP} beyond the last one, ${last}`);
}

/** Whether a record brings an id, and so all else that the service gives: an export's do. */
export function hasId(value: unknown): boolean {
  return typeof value === "object" && value !== null && Object.hasOwn(value, "id");
}

/** One table as a stream of records. Every method is one transaction. */
export interface BulkStore<Row, Import> {
  /**
   * By `id` ascending, from behind the id `after`. Who goes on behind the last one sees every record
   * that is there all the while once, in one state that it had; those made or removed meanwhile, perhaps.
   */
  exportPage(after: number, limit: number): Promise<readonly Row[]>;
  /**
   * Takes records with the ids, versions and times they bring; those without get new ones. One that is
   * refused hinders no other.
   * @param dry_run only tell, as if what earlier calls told had happened; nothing changes
   * @returns what became of each, in their order, once it is on disk
   * @throws {AppError} unavailable when the database cannot be written: then none was taken
   */
  import(records: readonly Import[], dry_run: boolean): Promise<readonly ImportResult[]>;
}
