/**
 * What the stores of users and orders share. The database renders what is read, and this file what is written, to the same
 * text: reading it again takes longer, and for `returning` SQLite would open a temporary table. Parameters of frequent
 * statements are by position, which takes half of the time of names.
 */
import type { Changes, Database } from "bun:sqlite";
import { systemCode } from "../../base/error.ts";
import type { Schema } from "../../base/schema.ts";
import { type ChangeType, changedFields, type changeOf } from "../../domain/change.ts";
import type { IdempotencyKey } from "../../domain/idempotency.ts";
import type { UniqueKey } from "../../domain/import-rules.ts";
import * as pages from "../../domain/page.ts";
import { type Preconditions, requirePreconditions } from "../../domain/precondition.ts";
import type { Author, RecordTable, RecordText } from "../../domain/record.ts";
import { firstVersion, nextVersion } from "../../domain/record.ts";
import type { RecordStore } from "../../domain/record-store.ts";
import type { ClientId } from "../../domain/token.ts";
import type { Reader } from "../engine/reader.ts";
import type { Writer } from "../engine/writer.ts";
import { recordJson } from "./columns.ts";
import type { IdempotencyStore } from "./idempotency.ts";

export interface StoreContext {
  readonly db: Database;
  readonly reader: Reader;
  readonly writer: Writer;
  readonly idempotency: IdempotencyStore;
  /** RFC 3339 in UTC with milliseconds. */
  readonly timestamp: () => string;
  /** Adds a change to the feed. Call it before the update or deletion, in its transaction. @returns the `last_change` */
  readonly noteChange: (...change: Parameters<typeof changeOf>) => number;
}

/** A list that is being read, within a transaction. */
export interface ListRows {
  readonly total: number;
  /** Iterating reads the rows: as many as the page has, and one more if the query has `after`. */
  readonly rows: Iterable<pages.JsonRow>;
}

/** @returns `RecordStore.list`, which reads a page and its total in the snapshot of the current turn */
export function createList<Query extends pages.PageQuery, List extends ListRows>(
  reader: Reader,
  table: string,
  readRows: (query: Query) => List,
) {
  return (query: Query, client?: ClientId, memory?: pages.PageMemory) =>
    reader.read(table, () => {
      const { rows, ...all } = readRows(query);
      return { ...all, ...pages.joinRecords(rows, query.limit, () => memory?.room(client)) };
    });
}

export function prepareText<Row>(db: Database, table: RecordTable, schema: Schema) {
  const json = recordJson(db, schema);
  return db.prepare<RecordText<Row>, [id: number]>(`
    select id, version, ${json} as json
    from ${table}
    where id = ?
  `);
}

/** @returns a function that finds the record which has a unique value; `null` if there is none */
export function prepareIdOf(db: Database, ofTable: RecordTable) {
  const prepare = (table: RecordTable, name: string) =>
    db.prepare<{ id: number }, [key: string]>(`
      select id
      from ${table}
      where ${name} = ?
    `);
  const byReference = prepare(ofTable, "reference");
  const byEmail = prepare("users", "email_key");
  return ([field, key]: UniqueKey): number | null =>
    (field === "email" ? byEmail : byReference).get(key)?.id ?? null;
}

/** Takes the columns, and then the id. */
export function prepareUpdate(db: Database, table: RecordTable, ...names: readonly string[]) {
  const columns = names.join(" = ?, ");
  return db.prepare<null, (string | number | null)[]>(`
    update ${table}
    set ${columns} = ?
    where id = ?
  `);
}

/** Of these, the index would be of less use than that of another filter: the unary plus prevents it. */
const plainConditions: Readonly<Record<string, string>> = {
  id: "id in (select value from json_each($id))",
  user_id: "+user_id = $user_id",
  status: "+status in (select value from json_each($status))",
  created_from: "+created_at >= $created_from",
  created_to: "+created_at < $created_to",
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
  filters: Readonly<Record<string, string | number | readonly (string | number)[] | undefined>>,
  query: pages.PageQuery,
): ListRows {
  const given = Object.entries(filters).filter(([, value]) => value !== undefined);
  const conditions = given.map(([name]) => plainConditions[name] ?? `${name} = $${name}`);
  // The text is the same for the same filters, and so is the statement.
  const statement = db.query<pages.JsonRow, Record<string, string | number>>(`
    select ${columns}
    from ${table}
    where ${conditions.join(" and ")}
  `);
  const values = given.map(([name, value]) => [
    name,
    Array.isArray(value) ? JSON.stringify(value) : value,
  ]);
  const rows = statement.all(Object.fromEntries(values));
  return { total: rows.length, rows: pages.rowsOfPage(rows, query) };
}

/** A key that another record has, or a user that does not exist. */
const UNIQUE_OR_MISSING = /^SQLITE_CONSTRAINT_(UNIQUE|FOREIGNKEY)$/;

/** Writes what has changed of a record, and the change. @throws {AppError} if another record has a key of it */
export type Update<Row> = (before: Row, after: Row, fields: number, author: Author) => void;

interface Records<Row, Query, Fields, NewRow> {
  readonly table: RecordTable;
  readonly schema: Schema;
  readonly created: ChangeType;
  /** @returns a function that reads a list. @param columns of a `JsonRow`, the first of which is the id */
  readonly prepareRows: (db: Database, columns: string) => (query: Query) => ListRows;
  readonly rowOf: (fields: Fields) => NewRow;
  /** @throws {AppError} if the user of the row does not exist, or a record with another id has a key of it */
  readonly requireValid: (row: NewRow, id: number | null) => void;
  readonly insert: (row: NewRow, now: string) => Changes;
  readonly update: Update<Row>;
}

/** @returns the store, and `write` and `find`, with which users add `remove` */
export function createRecordStore<
  Row extends Edit & { readonly version: number; readonly updated_at: string },
  Query extends pages.PageQuery,
  Fields extends object,
  NewRow,
  Edit extends object = Fields,
>(context: StoreContext, records: Records<Row, Query, Fields, NewRow>) {
  const { db, reader, writer, idempotency, timestamp, noteChange } = context;
  const { table, schema } = records;
  const text = prepareText<Row>(db, table, schema);
  const readRows = records.prepareRows(db, `id, ${recordJson(db, schema)} as json`);

  function write<Result extends RecordText<Row> | null>(
    key: IdempotencyKey | null,
    author: Author,
    work: () => Result,
  ): Promise<Result> {
    const once = (): RecordText<Row> | null => idempotency.once(key, table, work);
    return writer.write(table, once, author) as Promise<Result>;
  }

  /** Call it in the transaction that changes the record. @throws {AppError} version_mismatch if a precondition does not hold */
  function find(id: number, preconditions: Preconditions | null): RecordText<Row> | null {
    const found = text.get(id);
    if (found !== null) requirePreconditions(found, preconditions);
    return found;
  }

  /**
   * Inserts a row. `on conflict do nothing` would use up an id, and `or ignore` would hide a violated CHECK.
   * @returns the id
   * @throws {AppError} as `requireValid`
   */
  function insert(row: NewRow, now: string): number {
    try {
      return Number(records.insert(row, now).lastInsertRowid);
    } catch (error) {
      if (UNIQUE_OR_MISSING.test(systemCode(error))) records.requireValid(row, null);
      throw error;
    }
  }

  const store: RecordStore<Row, Query, Edit, Fields> = {
    list: createList(reader, table, readRows),
    get: (id) => reader.read(table, () => text.get(id)),
    create: (fields, key, author = null) =>
      write(key, author, () => {
        const now = timestamp();
        const record = firstVersion(insert(records.rowOf(fields), now), fields, now);
        noteChange(records.created, record, author);
        return { id: record.id, version: 1, json: JSON.stringify(record) };
      }),
    update: (id, edit, preconditions, key = null, author = null) =>
      write(key, author, () => {
        const found = find(id, preconditions);
        if (found === null) return null;
        const before = JSON.parse(found.json) as Row;
        const edited = edit(before);
        const fields = changedFields<Edit>(before, edited);
        if (fields === 0) return found;
        const after = nextVersion(before, edited as Partial<Row>, timestamp());
        records.update(before, after, fields, author);
        return { id, version: after.version, json: JSON.stringify(after) };
      }),
  };
  return { store, write, find };
}
