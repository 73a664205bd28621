/** Look-ups by a unique key. Those that are requested in one turn of the event loop share a statement. */
import { createBatchQueue } from "./batch.ts";
import type { Database, Session } from "./connection.ts";
import { mayConcernOneItem } from "./errors.ts";

/** Default of `maxItems`. It bounds the memory of a result: Bun.SQL keeps all of its rows. */
const MAX_LOOKUPS = 64;

/**
 * @param client as in `RecordStore.list`
 * @returns `null` if there is no such row
 */
export type Lookup<Key, Result> = (key: Key, client?: string) => Promise<Result | null>;

export interface LookupParts<Key, Row> {
  /** @returns the rows that exist, in any order */
  readonly find: (session: Session, keys: readonly Key[]) => Promise<readonly Row[]>;
  readonly keyOf: (row: Row) => Key;
  /** Maximum number of keys per statement. */
  readonly maxItems?: number;
  /** Maximum number of statements that run at the same time. The default is one for each connection. */
  readonly maxBatches?: number;
}

export function createLookup<Key extends string | number, Row extends object>(
  db: Database,
  { find, keyOf, maxItems = MAX_LOOKUPS, maxBatches = db.shares.read }: LookupParts<Key, Row>,
): Lookup<Key, Row> {
  interface Item {
    readonly key: Key;
    readonly client: string | null;
  }
  const enqueue = createBatchQueue<Item, Row | null>({
    async run(items) {
      const keys = items.map(({ key }) => key);
      const rows = await db.run("read", (session) => find(session, keys));
      const found = new Map(rows.map((row) => [keyOf(row), row]));
      return keys.map((key) => found.get(key) ?? null);
    },
    splitsOn: (error, count) => count > 1 && mayConcernOneItem(error),
    maxItems,
    maxBatches,
    clientOf: ({ client }) => client,
  });
  return (key, client) => enqueue({ key, client: client ?? null });
}
