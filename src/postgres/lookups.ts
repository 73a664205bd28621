import { createCollector } from "../garbage.ts";
import type { Maybe } from "../maybe.ts";
import type { RecordTable, RecordText } from "../record.ts";
import type { Schema } from "../schema.ts";
import { byPosition, createBatchQueue, type RunBatch } from "./batch.ts";
import { boundedColumns, selectedColumns } from "./columns.ts";
import type { Database, Session } from "./connection.ts";
import type { StoreContext } from "./context.ts";
import { isCausedByStatement } from "./errors.ts";

/** Default of `maxItems`. It bounds the memory of a result: Bun.SQL keeps all of its rows. */
const MAX_LOOKUPS = 64;

/** Maximum size of a record in a result of several. With the maximum number, they have 2 MiB. */
export const MAX_SHARED_BYTES = 2 ** 15;

/** A unique column of a table, and the columns to read. */
export interface LookupParts {
  readonly table: RecordTable | "tokens";
  readonly key: "id" | "email_key" | "hash";
  readonly columns: string;
}

/** A row with the number of the look-up that found it, which starts at 1. */
export type Positioned<Row> = Row & { readonly position: number };

/**
 * @param client as in `RecordStore.list`
 * @returns `null` if there is no such record
 */
export type Lookup<Key, Result> = (key: Key, client?: string) => Promise<Result | null>;

/** A key, and who looks it up. */
export interface Requested<Key> {
  readonly key: Key;
  readonly client: string | undefined;
}

/** What bounds the statements. */
interface LookupBounds {
  /** Maximum number of keys per statement. */
  readonly maxItems?: number;
  /** Maximum number of statements that run at the same time. The default is one for each connection. */
  readonly maxBatches?: number;
}

interface LookupOptions<Key, Result> extends LookupBounds {
  /** Looks up keys together. */
  readonly run: RunBatch<Requested<Key>, Result | null>;
  /** Whether an error may be that of a single key. The default is any that a statement has caused. */
  readonly mayBeCausedByOneItem?: (error: unknown) => boolean;
}

/**
 * `$1` is a JSON array of keys, because the plan for an array of SQL would depend on its length. Without the limit,
 * PostgreSQL would plan a join of two tables, and read the whole table if it was empty when the plan was made.
 */
function lookupStatement({ table, key, columns }: LookupParts): string {
  const type = key === "id" ? "bigint" : "text";
  return `
    select requested.position::integer as position, found.*
    from json_array_elements_text($1::text::json) with ordinality as requested (key, position)
    cross join lateral (
      select ${columns}
      from ${table}
      where ${table}.${key} = requested.key::${type}
      limit 1
    ) as found
  `;
}

export function createLookup<Key, Result>(
  { limiter, connections }: Database,
  {
    run,
    mayBeCausedByOneItem = isCausedByStatement,
    maxItems = MAX_LOOKUPS,
    maxBatches = connections,
  }: LookupOptions<Key, Result>,
): Lookup<Key, Result> {
  const lookUp = createBatchQueue({
    run,
    splitsOn: (error, count) => count > 1 && mayBeCausedByOneItem(error),
    maxItems,
    maxBatches,
  });
  return (key, client) => limiter.admit("read", () => lookUp({ key, client }), client);
}

/** @returns a function that looks up a row. Look-ups that are requested in one turn of the event loop share a statement */
export function prepareLookup<Key extends string | number, Row extends object, Result>(
  db: Database,
  parts: LookupParts,
  fromRow: (row: Positioned<Row>, requested: Requested<Key>) => Maybe<Result | null>,
  bounds: LookupBounds = {},
): Lookup<Key, Result> {
  const statement = lookupStatement(parts);

  async function run(batch: readonly Requested<Key>[]) {
    const keys = JSON.stringify(batch.map(({ key }) => key));
    const rows = await db.runAdmitted("read", (session) =>
      session.all<Positioned<Row>>(statement, keys),
    );
    const found = byPosition(rows);
    return batch.map((requested, at) => {
      const row = found[at];
      return row === undefined ? null : fromRow(row, requested);
    });
  }

  return createLookup(db, { ...bounds, run });
}

/** The columns of a record as stored; those of a large one without its long texts. */
export type BoundedRow<Stored extends { readonly metadata: string }> =
  | Stored
  | (Omit<Stored, "metadata"> & { readonly metadata: null });

/**
 * @param findOne reads all columns of a record
 * @returns a function that looks up a record that is too large for a shared result
 */
export function prepareLargeLookup<Key, Stored, Row>(
  { db, readLarge }: StoreContext,
  findOne: (session: Session, key: Key) => Promise<Stored | null>,
  toRecord: (row: Stored) => RecordText<Row>,
): (requested: Requested<Key>) => Promise<RecordText<Row> | null> {
  const collect = createCollector();
  return ({ key, client = "" }) =>
    readLarge(client, async () => {
      const row = await db.runAdmitted("read", (session) => findOne(session, key));
      if (row === null) return null;
      const record = toRecord(row);
      collect(record.json.length);
      return record;
    });
}

/** @returns a function that looks up a record by a unique column */
export function prepareRecordLookup<
  Key extends string | number,
  Stored extends { readonly metadata: string },
  Row,
>(
  context: StoreContext,
  { table, key, schema }: Pick<LookupParts, "table" | "key"> & { readonly schema: Schema },
  toRecord: (row: Stored) => RecordText<Row>,
): Lookup<Key, RecordText<Row>> {
  const selectOne = `
    select ${selectedColumns(schema)}
    from ${table}
    where ${key} = $1
  `;
  const findOne = (session: Session, value: Key) => session.first<Stored>(selectOne, value);
  const lookUpLarge = prepareLargeLookup(context, findOne, toRecord);
  const parts = { table, key, columns: boundedColumns(schema, MAX_SHARED_BYTES) };
  return prepareLookup<Key, BoundedRow<Stored>, RecordText<Row>>(
    context.db,
    parts,
    (row, requested) => (row.metadata === null ? lookUpLarge(requested) : toRecord(row)),
  );
}
