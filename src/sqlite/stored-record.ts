import type { Database } from "bun:sqlite";
import { LARGE_RECORD_BYTES, type ReserveMemory } from "../record.ts";

interface StoredRecord {
  readonly table: string;
  readonly columns: string;
  /** Upper bound of the size of a record as JSON, in bytes, without reading long columns. */
  readonly bytes: string;
}

/**
 * @returns a function that reads a record which a write will change. It reserves memory for a large record before it
 * reads it, and returns `null` if the record does not exist
 */
export function prepareFind<Row>(db: Database, { table, columns, bytes }: StoredRecord) {
  const small = db.prepare<Row, { id: number }>(`
    select ${columns}
    from ${table}
    where id = $id and ${bytes} <= ${LARGE_RECORD_BYTES}
  `);
  const size = db.prepare<{ bytes: number }, { id: number }>(`
    select ${bytes} as bytes
    from ${table}
    where id = $id
  `);
  const large = db.prepare<Row, { id: number }>(`
    select ${columns}
    from ${table}
    where id = $id
  `);
  return (id: number, reserve: ReserveMemory): Row | null => {
    const row = small.get({ id });
    if (row !== null) return row;
    const found = size.get({ id });
    if (found === null) return null;
    reserve(found.bytes);
    return large.get({ id });
  };
}
