/** How all of a database goes into an empty one, and the proof that it has arrived. */
import { fail } from "./error.ts";

/** Rows as they are stored, JSON as text: so that nothing is written anew on the way. */
export type CopyRow = Readonly<Record<string, string | number | null>>;

/**
 * What goes along, those first that others refer to. Rows come in the order of these columns, whose text
 * sorts by bytes: the first are the first to be forgotten.
 */
export const copied_tables = {
  users: {
    columns: [
      "id",
      "email",
      "email_key",
      "name",
      "metadata",
      "version",
      "created_at",
      "updated_at",
    ],
    sort_key: ["id"],
  },
  orders: {
    columns: [
      ...["id", "user_id", "currency", "items", "total", "status", "metadata", "version"],
      ...["created_at", "updated_at"],
    ],
    sort_key: ["id"],
  },
  imported_orders: { columns: ["import_key", "order_id"], sort_key: ["import_key"] },
  tokens: {
    columns: [
      ...["id", "hash", "name", "scope", "created_at", "expires_at", "last_used_at", "revoked_at"],
    ],
    sort_key: ["id"],
  },
  idempotency_keys: {
    columns: ["owner", "key", "fingerprint", "record", "created_at"],
    sort_key: ["created_at", "owner", "key"],
  },
} as const satisfies Record<string, { columns: readonly string[]; sort_key: readonly string[] }>;

export type CopiedTable = keyof typeof copied_tables;

const tables = Object.keys(copied_tables) as CopiedTable[];

/** Those whose ids are never given twice, not even when the row has gone. */
const tables_with_sequence = ["users", "orders", "tokens"] as const;
export type SequenceTable = (typeof tables_with_sequence)[number];

/** All rows, as they were at one moment. */
export interface CopySource {
  count(table: CopiedTable): Promise<number>;
  /** In order, in batches that fit into memory. */
  read(table: CopiedTable): AsyncIterable<readonly CopyRow[]>;
  /** The last id that was given, perhaps to a row that has gone; 0 for none. */
  lastId(table: SequenceTable): Promise<number>;
}

/**
 * The same rows. What goes wrong with them is told of their own database: who reads them uses another as well.
 * @param mapError the error to throw instead
 */
export function mapErrors(source: CopySource, mapError: (error: unknown) => unknown): CopySource {
  function rethrow(error: unknown): never {
    throw mapError(error);
  }
  return {
    count: (table) => source.count(table).catch(rethrow),
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

/** A database that is being filled, and that nobody else sees before it is full. */
export interface CopyTarget extends Omit<CopySource, "count"> {
  /** To be called table by table, in the order of {@link copied_tables}, and of the rows. */
  write(table: CopiedTable, rows: readonly CopyRow[]): Promise<void>;
  /** No id up to this one is given any more. To be called once a table, behind the rows. */
  advanceIds(table: SequenceTable, id: number): Promise<void>;
}

/** How many rows went, by table. */
export type RowCounts = Readonly<Record<CopiedTable, number>>;

/** Rows that were seen, in their order. */
interface TableDigest {
  readonly rows: number;
  /** SHA-256 of them. */
  readonly digest: string;
}

async function digestRows(
  table: CopiedTable,
  batches: AsyncIterable<readonly CopyRow[]>,
  onBatch: (rows: readonly CopyRow[]) => Promise<void> | void,
): Promise<TableDigest> {
  const { columns } = copied_tables[table];
  const hasher = new Bun.CryptoHasher("sha256");
  let rows = 0;
  for await (const batch of batches) {
    for (const row of batch) hasher.update(`${JSON.stringify(columns.map((name) => row[name]))}\n`);
    rows += batch.length;
    await onBatch(batch);
  }
  return { rows, digest: hasher.digest("hex") };
}

/** @throws {AppError} operator when an id could be given again */
async function copyLastId(
  table: SequenceTable,
  source: CopySource,
  target: CopyTarget,
): Promise<void> {
  const last = await source.lastId(table);
  await target.advanceIds(table, last);
  if ((await target.lastId(table)) < last) {
    fail("operator", `ids of ${table} up to ${last} would be given again`);
  }
}

/**
 * Writes all rows, reads them back, and compares number and digest of each table with those of the source.
 * @param onProgress told of rows that were written, or read back: in the end of twice as many as there are
 * @throws {AppError} operator when they differ, or `signal` ends it
 */
export async function copyRows(
  source: CopySource,
  target: CopyTarget,
  onProgress: (rows: number, total: number) => void,
  signal: AbortSignal,
): Promise<RowCounts> {
  const counts = {} as Record<CopiedTable, number>;
  for (const table of tables) counts[table] = await source.count(table);
  const total = 2 * Object.values(counts).reduce((sum, rows) => sum + rows);
  let done = 0;
  function advance(rows: number): void {
    if (signal.aborted) fail("operator", "it was interrupted");
    done += rows;
    onProgress(done, total);
  }
  advance(0);

  const written = {} as Record<CopiedTable, TableDigest>;
  for (const table of tables) {
    written[table] = await digestRows(table, source.read(table), async (rows) => {
      await target.write(table, rows);
      advance(rows.length);
    });
  }
  for (const table of tables_with_sequence) await copyLastId(table, source, target);
  for (const table of tables) {
    const read_back = await digestRows(table, target.read(table), (rows) => advance(rows.length));
    if (read_back.rows !== counts[table]) {
      fail("operator", `of ${counts[table]} rows of ${table} ${read_back.rows} have arrived`);
    }
    if (read_back.digest !== written[table].digest) {
      fail("operator", `the rows of ${table} have not arrived as they were`);
    }
  }
  return counts;
}
