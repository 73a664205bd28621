/** What the transfers of users and of orders share: one transaction a batch, and the trial. */
import type { Database } from "bun:sqlite";
import type { Imported, Transfer } from "../transfer.ts";
import type { Table } from "./buckets.ts";
import type { TableWriter } from "./commit.ts";
import { type Ids, prepareIds, trialIds } from "./ids.ts";
import { endTurn } from "./lists.ts";
import type { TableReader } from "./read.ts";

/** Takes one record. It throws only when the database does. */
export type Take<Import> = (record: Import, ids: Ids) => Imported;

/** Whether JSON text and a value say the same, whatever the order of the members. */
export function isSameJson(stored: string, given: string): boolean {
  return stored === given || Bun.deepEquals(JSON.parse(stored), JSON.parse(given), true);
}

/** What takes the records of one transaction. */
interface Batch<Import> {
  readonly take: Take<Import>;
  /** To be called last. */
  finish(): void;
}

interface Parts<Row, Import> {
  readonly table: Table;
  walk(after: number, limit: number): readonly Row[];
  /** Into the table itself. */
  open(): Batch<Import>;
  /** Makes a table of its own, which the database keeps for this connection alone, and takes into that. */
  prepareTrial(): Take<Import>;
}

export function createTransfer<Row, Import>(
  db: Database,
  reader: TableReader,
  writer: TableWriter,
  { table, walk, open, prepareTrial }: Parts<Row, Import>,
): Transfer<Row, Import> {
  const openIds = prepareIds(db, table);
  let trial: { readonly take: Take<Import>; readonly ids: Ids } | null = null;

  return {
    async walk(after, limit) {
      const rows = reader.read(() => walk(after, limit));
      await endTurn();
      return rows;
    },

    async import(records, dry) {
      if (dry) {
        const results = reader.read(() => {
          trial ??= { take: prepareTrial(), ids: trialIds(openIds().last()) };
          const { take, ids } = trial;
          return records.map((record) => take(record, ids));
        });
        await endTurn();
        return results;
      }
      return writer.write(() => {
        const ids = openIds();
        const { take, finish } = open();
        const results = records.map((record) => take(record, ids));
        ids.finish();
        finish();
        return results;
      });
    },
  };
}
