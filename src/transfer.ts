/** How a whole table comes out, record by record, and goes in again. */

/** What became of one record of an import. */
export type Imported =
  | { readonly outcome: "created" }
  /** It was there already, the same in all that was given: so an import can be run again. */
  | { readonly outcome: "known" }
  /** `reason` is a sentence as in a refusal to a client. */
  | { readonly outcome: "refused"; readonly reason: string };

/** Whether a record brings an id, and so all else that the service gives: an export's do. */
export function isComplete(value: unknown): boolean {
  return typeof value === "object" && value !== null && Object.hasOwn(value, "id");
}

/** One table as a stream of records. Every method is one transaction. */
export interface Transfer<Row, Import> {
  /**
   * By `id` ascending, from behind the id `after`. Who goes on behind the last one sees every record
   * that is there all the while once, in one state that it had; those made or removed meanwhile, perhaps.
   */
  walk(after: number, limit: number): Promise<readonly Row[]>;
  /**
   * Takes records with the ids, versions and times they bring; those without get new ones. One that is
   * refused hinders no other.
   * @param dry only tell, as if what earlier calls told had happened; nothing changes
   * @returns what became of each, in their order, once it is on disk
   * @throws {AppError} unavailable when the database cannot be written: then none was taken
   */
  import(records: readonly Import[], dry: boolean): Promise<readonly Imported[]>;
}
