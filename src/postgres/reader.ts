import { type BatchOptions, byPosition, createBatchQueue, separateOnError } from "./batch.ts";
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

/** @returns `null` if there is no such record */
export type Lookup<Key, Result> = (key: Key) => Promise<Result | null>;

export interface Reader {
  prepare<Key extends string | number, Row extends object, Result>(
    parts: LookupParts,
    fromRow: (row: Row) => Result,
  ): Lookup<Key, Result>;
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

/**
 * @param run looks up keys together
 * @param isOfOneKey whether an error may be that of a single key
 */
export function createLookup<Key, Result>(
  { limiter, connections }: Database,
  run: BatchOptions<Key, Result | null>["run"],
  isOfOneKey = isCausedByStatement,
): Lookup<Key, Result> {
  const lookUp = createBatchQueue({
    run: separateOnError(run, isOfOneKey),
    max_items: MAX_LOOKUPS,
    max_batches: connections,
  });
  return (key) => limiter.admit("read", () => lookUp(key));
}

/** Look-ups that are requested in one turn of the event loop share one statement. */
export function createReader(db: Database): Reader {
  return {
    prepare<Key extends string | number, Row extends object, Result>(
      parts: LookupParts,
      fromRow: (row: Row) => Result,
    ) {
      const statement = lookupStatement(parts);

      async function run(keys: readonly Key[]): Promise<readonly (Result | null)[]> {
        const rows = await db.readMany((session) =>
          session.all<Row & { position: number }>(statement, JSON.stringify(keys)),
        );
        const found = byPosition(rows);
        return keys.map((_key, at) => {
          const row = found[at];
          return row === undefined ? null : fromRow(row);
        });
      }
      return createLookup(db, run);
    },
  };
}
