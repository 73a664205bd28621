/**
 * Reads and changes records of users or orders. No statement has `returning`, for which SQLite would open a temporary
 * table: records are built from what was just written.
 */

import type { Schema } from "../../base/schema.ts";
import type { IdempotencyKey } from "../../domain/idempotency.ts";
import type { PageQuery } from "../../domain/page.ts";
import { type Preconditions, requirePreconditions } from "../../domain/precondition.ts";
import type { Author, RecordText } from "../../domain/record.ts";
import { concatenated } from "../file/connection.ts";
import { columnNames, recordJson } from "./columns.ts";
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
  const json = recordJson(record);
  const textWithId = db.prepare<RecordText<Row>, ById>(`
    select id, version, ${concatenated(db, json)} as json
    from ${table}
    where id = $id
  `);
  const stored = db.prepare<Stored, ById>(`
    select ${columns}
    from ${table}
    where id = $id
  `);

  return {
    list: lists.prepare({ table, json, prepareRows }),
    get: (id: number) => reader.read(table, () => textWithId.get({ id })),
    /** Runs `work`, which creates a record, once per key. */
    createOnce: (key: IdempotencyKey | null, author: Author, work: () => RecordText<Row>) =>
      writer.write(table, () => idempotency.once(key, work), author),
    /**
     * Runs `work` on a stored record after checking its preconditions.
     * @returns `null` if the record does not exist
     */
    modify: (
      id: number,
      preconditions: Preconditions | null,
      author: Author,
      work: (stored: Stored) => RecordText<Row>,
    ) =>
      writer.write(
        table,
        () => {
          const found = stored.get({ id });
          if (found === null) return null;
          requirePreconditions(found, preconditions);
          return work(found);
        },
        author,
      ),
  };
}
