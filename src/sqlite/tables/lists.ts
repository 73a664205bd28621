/** Reads pages as JSON, each at once, in the snapshot of the current turn. */
import type { Database } from "bun:sqlite";
import {
  type JsonRow,
  joinRecords,
  nextAfter,
  type Page,
  type PageQuery,
} from "../../domain/page.ts";
import type { Reader } from "../engine/reader.ts";
import { concatenated } from "../file/connection.ts";

/** What a page has besides its records. */
interface Totals {
  readonly total: number;
}

/** A list that is being read. */
export interface ListRows<Row, Meta extends Totals = Totals> {
  readonly meta: Meta;
  /** Iterating reads the rows: as many as the page has, and one more if the query has `after`. */
  readonly rows: Iterable<Row>;
}

/** Reads a list within a transaction. */
export type ReadRows<Query, Row, Meta extends Totals = Totals> = (
  query: Query,
) => ListRows<Row, Meta>;

export interface List<Query, Meta extends Totals = Totals> {
  readonly table: string;
  /** The parts of a record as JSON, from the columns of the table. @see concatenated */
  readonly json: readonly string[];
  /** @param columns of the rows; the first one is the id */
  readonly prepareRows: <Row extends { readonly id: number }>(
    db: Database,
    columns: string,
  ) => ReadRows<Query, Row, Meta>;
}

export type ListReader = ReturnType<typeof createListReader>;

export function createListReader(db: Database, reader: Reader) {
  return {
    /** @returns reads a page */
    prepare<Query extends PageQuery, Meta extends Totals = Totals>({
      table,
      json,
      prepareRows,
    }: List<Query, Meta>): (query: Query) => Page & Meta {
      const readRows = prepareRows<JsonRow>(db, `id, ${concatenated(db, json)} as json`);
      return (query) =>
        reader.read(table, () => {
          const { meta, rows } = readRows(query);
          const joined = joinRecords(rows, query.limit);
          return { ...meta, records: joined.records, nextAfter: nextAfter(joined) };
        });
    },
  };
}
