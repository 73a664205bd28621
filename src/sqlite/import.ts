/** Common part of the imports of users and orders: one transaction per batch, and the dry run. */
import { setImmediate as endTurn } from "node:timers/promises";
import type { BulkStore, ImportResult } from "../import.ts";
import type { Connection } from "./connection.ts";
import { createDryRunIds, type IdTracker, prepareIdTracker } from "./count-index.import.ts";
import type { CountedTable } from "./count-index.ts";

/** Imports one record. It throws only if the database fails. */
export type ImportOne<Import> = (record: Import, ids: IdTracker) => ImportResult;

/** @returns whether two JSON texts have equal values; the order of object members does not matter */
export function isSameJson(stored: string, given: string): boolean {
  return stored === given || Bun.deepEquals(JSON.parse(stored), JSON.parse(given), true);
}

/** Imports the records of one transaction. */
interface ImportBatch<Import> {
  readonly importOne: ImportOne<Import>;
  /** Call it after the last record. */
  finish(): void;
}

interface BulkStoreParts<Row, Import> {
  readonly table: CountedTable;
  readPage(after: number, limit: number): readonly Row[];
  /** Imports into the table itself. */
  openBatch(): ImportBatch<Import>;
  /** Creates a temporary table, which only this connection sees, and imports into it. */
  prepareDryRun(): ImportOne<Import>;
}

export function createBulkStore<Row, Import>(
  connection: Connection,
  { table, readPage, openBatch, prepareDryRun }: BulkStoreParts<Row, Import>,
): BulkStore<Row, Import> {
  const { db } = connection;
  const reader = connection.reader.forTable(table);
  const writer = connection.writer.forTable(table);
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
        const results = reader.readWithoutRetry(() => {
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
