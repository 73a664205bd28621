import { fail } from "../base/error.ts";
import { columnNames } from "./columns.ts";
import { Order } from "./order.ts";
import { tokenColumns } from "./token.ts";
import { User } from "./user.ts";

/** A row as stored. JSON stays text, so that the copy does not reformat it. */
export type CopyRow = Readonly<Record<string, string | number | null>>;

/** Rows per batch. With rows of the maximum size, a batch has about 3 MB, and several copies of it are in memory. */
export const COPY_BATCH_ROWS = 100;

/** Referenced ones first: on SQLite, records refer to changes. Text of a sort key is compared bytewise on both databases. */
export const copiedTables = {
  // With their ids. The target has a feed of another name, because changes of the source can follow.
  changes: {
    columns: "id type record_id version status token created_at fields".split(" "),
    sortKey: ["id"],
  },
  users: { columns: [...columnNames(User), "email_key"], sortKey: ["id"] },
  orders: { columns: columnNames(Order), sortKey: ["id"] },
  tokens: { columns: ["id", ...tokenColumns.split(", ")], sortKey: ["id"] },
  idempotency_keys: {
    columns: ["owner", "key", "fingerprint", "record", "user_id", "created_at"],
    sortKey: ["created_at", "owner", "key"],
  },
} as const satisfies Record<string, Record<"columns" | "sortKey", readonly string[]>>;

export type CopiedTable = keyof typeof copiedTables;

export const copiedTableNames = Object.keys(copiedTables) as CopiedTable[];

/** Tables whose ids are never reused, not even after a row is deleted. */
export const tablesWithSequence = ["users", "orders", "tokens"] as const;
export type SequenceTable = (typeof tablesWithSequence)[number];

export interface CopySource {
  /** Returns the rows by sort key, in batches that fit into memory. */
  read(table: CopiedTable): AsyncIterable<readonly CopyRow[]>;
  /** The last assigned id, even if its row was deleted; 0 if there is none. */
  lastId(table: SequenceTable): Promise<number>;
}

/** @returns the same snapshot, whose errors name its own database: two are open during a copy */
export function withMappedErrors(
  source: CopySource,
  mapError: (error: unknown) => unknown,
): CopySource {
  function rethrow(error: unknown): never {
    throw mapError(error);
  }
  return {
    async *read(table) {
      try {
        yield* source.read(table);
      } catch (error) {
        rethrow(error);
      }
    },
    lastId: (table) => source.lastId(table).catch(rethrow),
  };
}

/** An empty database to be filled. Others see the rows only after all are written. */
export interface CopyTarget extends CopySource {
  /** Call in the order of {@link copiedTables}, and of the rows of a table. */
  write(table: CopiedTable, rows: readonly CopyRow[]): Promise<void>;
  /** Advances the id sequence to `id`. Call once per table, after its rows. */
  advanceIds(table: SequenceTable, id: number): Promise<void>;
}

async function digestRows(
  table: CopiedTable,
  batches: AsyncIterable<readonly CopyRow[]>,
  onBatch: (rows: readonly CopyRow[]) => Promise<void> | void,
) {
  const { columns } = copiedTables[table];
  const hasher = new Bun.CryptoHasher("sha256");
  let rows = 0;
  for await (const batch of batches) {
    for (const row of batch) hasher.update(`${JSON.stringify(columns.map((name) => row[name]))}\n`);
    rows += batch.length;
    await onBatch(batch);
  }
  return { rows, digest: hasher.digest("hex") };
}

/** Writes all rows, and compares them when read back. @throws {AppError} operator if they differ, or ids could be given again */
export async function copyRows(source: CopySource, target: CopyTarget, signal: AbortSignal) {
  const counts = {} as Record<CopiedTable, number>;
  const digests = {} as Record<CopiedTable, string>;
  for (const table of copiedTableNames) {
    const written = await digestRows(table, source.read(table), async (rows) => {
      signal.throwIfAborted();
      await target.write(table, rows);
    });
    counts[table] = written.rows;
    digests[table] = written.digest;
  }
  for (const table of tablesWithSequence) {
    const last = await source.lastId(table);
    await target.advanceIds(table, last);
    if ((await target.lastId(table)) < last)
      fail("operator", `ids of ${table} up to ${last} could be assigned again`);
  }
  for (const table of copiedTableNames) {
    const readBack = await digestRows(table, target.read(table), () => signal.throwIfAborted());
    if (readBack.digest !== digests[table])
      fail("operator", `the copied rows of ${table} differ from the source`);
  }
  return counts;
}
