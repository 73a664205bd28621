import { byPosition, createBatchQueue, type RunBatch, separateOnError } from "./batch.ts";
import type { Database } from "./connection.ts";
import { isCausedByStatement } from "./errors.ts";

/** Maximum number of look-ups per statement. It bounds the memory of a result: Bun.SQL keeps all of its rows. */
const MAX_LOOKUPS = 64;

/** A unique column of a table, and the columns to read. */
export interface LookupParts {
  readonly table: "users" | "orders" | "tokens";
  readonly key: "id" | "email_key" | "hash";
  readonly columns: string;
}

/** A row with the number of the look-up that found it, which starts at 1. */
export type Positioned<Row> = Row & { readonly position: number };

/** @returns `null` if there is no such record */
export type Lookup<Key, Result> = (key: Key) => Promise<Result | null>;

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

/**
 * @param run looks up keys together
 * @param mayBeCausedByOneItem whether an error may be that of a single key
 */
export function createLookup<Key, Result>(
  { limiter, connections }: Database,
  run: RunBatch<Key, Result | null>,
  mayBeCausedByOneItem = isCausedByStatement,
): Lookup<Key, Result> {
  const lookUp = createBatchQueue({
    run: separateOnError(run, mayBeCausedByOneItem),
    maxItems: MAX_LOOKUPS,
    maxBatches: connections,
  });
  return (key) => limiter.admit("read", () => lookUp(key));
}

/** @returns a function that looks up a record. Look-ups that are requested in one turn of the event loop share a statement */
export function prepareLookup<Key extends string | number, Row extends object, Result>(
  db: Database,
  parts: LookupParts,
  fromRow: (row: Positioned<Row>) => Result,
): Lookup<Key, Result> {
  const statement = lookupStatement(parts);
  return createLookup(db, async (keys: readonly Key[]) => {
    const rows = await db.run(
      "read",
      (session) => session.all<Positioned<Row>>(statement, JSON.stringify(keys)),
      { admitted: keys.length },
    );
    const found = byPosition(rows);
    return keys.map((_key, at) => {
      const row = found[at];
      return row === undefined ? null : fromRow(row);
    });
  });
}
