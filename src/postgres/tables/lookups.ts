/** Look-ups by a unique key. Those that are requested in one turn of the event loop share a statement. */
import { createBatchQueue } from "../engine/batch.ts";
import type { Database, Session } from "../server/connection.ts";
import { mayConcernOneItem } from "../server/errors.ts";

/** Default of `maxItems`. It bounds the memory of a result: Bun.SQL keeps all of its rows. */
const MAX_LOOKUPS = 64;

interface LookupParts<Key, Row> {
  readonly find: (session: Session, keys: readonly Key[]) => Promise<readonly Row[]>;
  readonly keyOf: (row: Row) => Key;
  readonly maxItems?: number;
  readonly maxBatches?: number;
}

export function createLookup<Key extends string | number, Row extends object>(
  db: Database,
  { find, keyOf, maxItems = MAX_LOOKUPS, maxBatches = db.shares.read }: LookupParts<Key, Row>,
) {
  const enqueue = createBatchQueue<{ key: Key; client: string | null }, Row | null>({
    async run(items) {
      const keys = items.map(({ key }) => key);
      const rows = await db.run("read", (session) => find(session, keys));
      const found = new Map(rows.map((row) => [keyOf(row), row]));
      return keys.map((key) => found.get(key) ?? null);
    },
    splitsOn: mayConcernOneItem,
    maxItems,
    maxBatches,
    clientOf: ({ client }) => client,
  });
  return (key: Key, client: string | null = null) => enqueue({ key, client });
}
