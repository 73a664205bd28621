import type { RecordTable, RecordText } from "../record.ts";
import type { Schema } from "../schema.ts";
import { byPosition, createBatchQueue, type RunBatch } from "./batch.ts";
import { selectedColumns } from "./columns.ts";
import type { Database } from "./connection.ts";
import { isCausedByStatement } from "./errors.ts";

/** Default of `maxItems`. It bounds the memory of a result: Bun.SQL keeps all of its rows. */
const MAX_LOOKUPS = 64;

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

/** What bounds the statements. */
interface LookupBounds {
  /** Maximum number of keys per statement. */
  readonly maxItems?: number;
  /** Maximum number of statements that run at the same time. The default is one for each connection. */
  readonly maxBatches?: number;
}

interface LookupOptions<Key, Result> extends LookupBounds {
  /** Looks up keys together. */
  readonly run: RunBatch<Key, Result | null>;
  /** Whether an error may be that of a single key. The default is any that a statement has caused. */
  readonly mayBeCausedByOneItem?: (error: unknown) => boolean;
}

/**
 * `$1` is a JSON array of keys, because the plan for an array of SQL would depend on its length. Without the limit,
 * PostgreSQL would plan a join of two tables, and read the whole table if it was empty when the plan was made.
 */
export function lookupStatement({ table, key, columns }: LookupParts): string {
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
  return (key, client) => limiter.admit("read", () => lookUp(key), client);
}

/** @returns a function that looks up a row. Look-ups that are requested in one turn of the event loop share a statement */
export function prepareLookup<Key extends string | number, Row extends object, Result>(
  db: Database,
  parts: LookupParts,
  fromRow: (row: Positioned<Row>) => Result,
  bounds: LookupBounds = {},
): Lookup<Key, Result> {
  const statement = lookupStatement(parts);

  async function run(requested: readonly Key[]) {
    const keys = JSON.stringify(requested);
    const rows = await db.runAdmitted("read", (session) =>
      session.all<Positioned<Row>>(statement, keys),
    );
    const found = byPosition(rows);
    return requested.map((_key, at) => {
      const row = found[at];
      return row === undefined ? null : fromRow(row);
    });
  }

  return createLookup(db, { ...bounds, run });
}

/** @returns a function that looks up a record by a unique column */
export function prepareRecordLookup<Key extends string | number, Stored extends object, Row>(
  db: Database,
  { table, key, schema }: Pick<LookupParts, "table" | "key"> & { readonly schema: Schema },
  toRecord: (row: Stored) => RecordText<Row>,
): Lookup<Key, RecordText<Row>> {
  const parts = { table, key, columns: selectedColumns(schema) };
  return prepareLookup<Key, Stored, RecordText<Row>>(db, parts, toRecord);
}
