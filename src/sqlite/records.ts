/**
 * Reads and changes records of users or orders. No statement has `returning`, for which SQLite would open a temporary
 * table: records are built from what was just written.
 */
import { jsonBytes } from "../columns.ts";
import type { IdempotencyKey } from "../idempotency.ts";
import type { PageQuery } from "../page.ts";
import { type Preconditions, requirePreconditions } from "../precondition.ts";
import { type Author, LARGE_RECORD_BYTES, type RecordText, type ReserveMemory } from "../record.ts";
import type { Schema } from "../schema.ts";
import { columnNames, recordJson } from "./columns.ts";
import { concatenated } from "./connection.ts";
import type { StoreContext } from "./context.ts";
import type { List } from "./lists.ts";

type ById = { readonly id: number };

/** @param record the schema of a record */
export function prepareRecords<
  Row,
  Query extends PageQuery,
  Stored extends { readonly version: number },
>(
  { db, reader, writer, lists, idempotency }: StoreContext,
  record: Schema,
  { table, prepareRows }: Pick<List<Query>, "table" | "prepareRows">,
) {
  const columns = columnNames(record);
  const bytes = jsonBytes(record, "upper");
  const json = recordJson(record);
  const textWithId = db.prepare<RecordText<Row>, ById>(`
    select id, version, ${concatenated(db, json)} as json
    from ${table}
    where id = $id
  `);
  const small = db.prepare<Stored, ById>(`
    select ${columns}
    from ${table}
    where id = $id and ${bytes} <= ${LARGE_RECORD_BYTES}
  `);
  const size = db.prepare<{ bytes: number }, ById>(`
    select ${bytes} as bytes
    from ${table}
    where id = $id
  `);
  const large = db.prepare<Stored, ById>(`
    select ${columns}
    from ${table}
    where id = $id
  `);

  function find(id: number, reserve: ReserveMemory): Stored | null {
    const row = small.get({ id });
    if (row !== null) return row;
    const found = size.get({ id });
    if (found === null) return null;
    reserve(found.bytes);
    return large.get({ id });
  }

  return {
    list: lists.prepare({ table, json, bytes, prepareRows }),
    get: (id: number) => reader.read(table, () => textWithId.get({ id })),
    /** Runs `work`, which creates a record, once per key. */
    createOnce: (key: IdempotencyKey | null, author: Author, work: () => RecordText<Row>) =>
      writer.write(table, () => idempotency.once(key, work), author),
    /**
     * Runs `work` on a stored record after checking its preconditions. Memory for a large record is reserved before it is
     * read.
     * @returns `null` if the record does not exist
     */
    modify: (
      id: number,
      preconditions: Preconditions | null,
      author: Author,
      reserve: ReserveMemory | undefined,
      work: (stored: Stored) => RecordText<Row>,
    ) =>
      writer.write(
        table,
        (reserveHere) => {
          const stored = find(id, reserveHere);
          if (stored === null) return null;
          requirePreconditions(stored, preconditions);
          return work(stored);
        },
        author,
        reserve,
      ),
  };
}
