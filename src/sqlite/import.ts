/** What the transfers of users and of orders share: one transaction a batch, and the trial. */
import type { Database } from "bun:sqlite";
import type { BulkStore, ImportResult } from "../import.ts";
import { createDryRunIds, type IdTracker, prepareIdTracker } from "./count-index.import.ts";
import type { CountedTable } from "./count-index.ts";
import { endTurn } from "./lists.ts";
import type { TableReader } from "./reader.ts";
import type { TableWriter } from "./writer.ts";

/** Takes one record. It throws only when the database does. */
export type ImportOne<Import> = (record: Import, ids: IdTracker) => ImportResult;

/** Whether JSON text and a value say the same, whatever the order of the members. */
export function isSameJson(stored: string, given: string): boolean {
  return stored === given || Bun.deepEquals(JSON.parse(stored), JSON.parse(given), true);
}

/** What takes the records of one transaction. */
interface ImportBatch<Import> {
  readonly importOne: ImportOne<Import>;
  /** To be called last. */
  finish(): void;
}

interface BulkStoreParts<Row, Import> {
  readonly table: CountedTable;
  readPage(after: number, limit: number): readonly Row[];
  /** Into the table itself. */
  openBatch(): ImportBatch<Import>;
  /** Makes a table of its own, which the database keeps for this connection alone, and takes into that. */
  prepareDryRun(): ImportOne<Import>;
}

export function createBulkStore<Row, Import>(
  db: Database,
  reader: TableReader,
  writer: TableWriter,
  { table, readPage, openBatch, prepareDryRun }: BulkStoreParts<Row, Import>,
): BulkStore<Row, Import> {
  const openIdTracker = prepareIdTracker(db, table);
  let dry_run_state: { readonly importOne: ImportOne<Import>; readonly ids: IdTracker } | null =
    null;

  return {
    async exportPage(after, limit) {
      const rows = reader.read(() => readPage(after, limit));
      await endTurn();
      return rows;
    },

    async import(records, dry_run) {
      if (dry_run) {
        const results = reader.read(() => {
          dry_run_state ??= {
            importOne: prepareDryRun(),
            ids: createDryRunIds(openIdTracker().last()),
          };
          const { importOne, ids } = dry_run_state;
          return records.map((record) => importOne(record, ids));
        });
        await endTurn();
        return results;
      }
      return writer.write(() => {
        const ids = openIdTracker();
        const { importOne, finish } = openBatch();
        const results = records.map((record) => importOne(record, ids));
        ids.flush();
        finish();
        return results;
      });
    },
  };
}
