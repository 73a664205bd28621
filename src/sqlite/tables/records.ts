/**
 * Reads records of users or orders. The database renders them, also for the response to a write. No statement has
 * `returning`, for which SQLite would open a temporary table.
 */
import type { Database } from "bun:sqlite";
import type { Schema } from "../../base/schema.ts";
import { type JsonRow, type PageQuery, rowsOfPage } from "../../domain/page.ts";
import { type Preconditions, requirePreconditions } from "../../domain/precondition.ts";
import type { RecordTable, RecordText } from "../../domain/record.ts";
import { recordJson } from "./columns.ts";
import type { StoreContext } from "./context.ts";
import { type ListRows, pageOf } from "./lists.ts";

/** By position, which takes less time than by name. */
type ById = [id: number];

/** @returns a statement for a record as text */
export function prepareText<Row>(db: Database, table: RecordTable, schema: Schema) {
  const json = recordJson(db, schema);
  return db.prepare<RecordText<Row>, ById>(`
    select id, version, ${json} as json
    from ${table}
    where id = ?
  `);
}

type Filters = Readonly<Record<string, string | number | readonly number[] | undefined>>;

/** Of these, the index would be of less use than that of another filter: the unary plus prevents it. */
const plainConditions: Readonly<Record<string, string>> = {
  id: "id in (select value from json_each($id))",
  user_id: "+user_id = $user_id",
  status: "+status = $status",
};

/**
 * Reads the rows that match. At least one filter is on a unique column, so they are few.
 * @param columns of a `JsonRow`, the first of which is the id
 * @param filters values of columns; at least one
 */
export function readFew(
  db: Database,
  table: RecordTable,
  columns: string,
  filters: Filters,
  query: PageQuery,
): ListRows {
  const given = Object.entries(filters).filter(([, value]) => value !== undefined);
  const conditions = given.map(([name]) => plainConditions[name] ?? `${name} = $${name}`);
  // The text is the same for the same filters, and so is the statement.
  const statement = db.query<JsonRow, Record<string, string | number>>(`
    select ${columns}
    from ${table}
    where ${conditions.join(" and ")}
  `);
  const values = given.map(([name, value]) => [
    name,
    Array.isArray(value) ? JSON.stringify(value) : value,
  ]);
  const rows = statement.all(Object.fromEntries(values));
  return { meta: { total: rows.length }, rows: rowsOfPage(rows, query) };
}

interface Records<Query> {
  readonly table: RecordTable;
  readonly schema: Schema;
  /** @returns a function that reads a list. @param columns of a `JsonRow`, the first of which is the id */
  readonly prepareRows: (db: Database, columns: string) => (query: Query) => ListRows;
}

export function prepareRecords<Row, Query extends PageQuery>(
  { db, reader }: StoreContext,
  { table, schema, prepareRows }: Records<Query>,
) {
  const text = prepareText<Row>(db, table, schema);
  const readRows = prepareRows(db, `id, ${recordJson(db, schema)} as json`);

  return {
    list: (query: Query) => reader.read(table, () => pageOf(readRows(query), query.limit)),
    get: (id: number) => reader.read(table, () => text.get(id)),
    /** @returns a record that the transaction has found or written */
    textOf: (id: number) => text.get(id) as RecordText<Row>,
  };
}

/**
 * Call it in the transaction that changes the record.
 * @returns the record if its preconditions hold; `null` if it does not exist
 * @throws {AppError} version_mismatch if one does not hold
 */
export function checked<Found extends { readonly version: number }>(
  found: Found | null,
  preconditions: Preconditions | null,
): Found | null {
  if (found !== null) requirePreconditions(found, preconditions);
  return found;
}
