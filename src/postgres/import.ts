/** Bulk export and import, shared by users and orders. Each batch of an import is one transaction. */
import type { SequenceTable } from "../copy.ts";
import { sortMembers } from "../idempotency.ts";
import type { BulkStore, ImportResult } from "../import.ts";
import type { Database, Session } from "./connection.ts";
import type { Cell } from "./copy-format.ts";
import { isForeignKeyViolation } from "./errors.ts";

/** Maximum number of attempts of a batch if the user of an order is deleted during the import. */
const MAX_ATTEMPTS = 3;

export type BulkTable = "users" | "orders";

/** The last assigned id of one table. */
export interface IdTracker {
  /** @returns the last assigned id; 0 if there is none */
  last(): number;
  add(id: number): void;
}

function createIdTracker(last: number): IdTracker {
  let last_id = last;
  return {
    last: () => last_id,
    add(id) {
      last_id = Math.max(last_id, id);
    },
  };
}

/** Rows to write with COPY. */
export interface CopyBuffer {
  /** The table and its columns. */
  readonly into: string;
  readonly rows: Cell[][];
}

/** Decides on records one by one, and remembers those it accepted. */
export interface Importer<Import> {
  /** Loads the rows that these records can conflict with. Call before `importOne`. */
  prepare(session: Session, records: readonly Import[]): Promise<void>;
  importOne(record: Import, ids: IdTracker): ImportResult;
  /** The accepted rows, in the order in which the tables must be written. */
  readonly buffers: readonly CopyBuffer[];
}

/**
 * Hashes a record for comparison, independent of the order of members. A dry run has to remember every record, so
 * it keeps only hashes. 64 bits are enough against accidental collisions.
 */
export function digest(record: unknown): bigint {
  return BigInt(Bun.hash(JSON.stringify(sortMembers(record))));
}

interface BulkStoreParts<Row, Import> {
  readonly table: BulkTable;
  /** Query for the rows with an id above `$1`, at most `$2` of them. */
  readonly page: string;
  readonly fromRow: (row: never) => Row;
  readonly createImporter: () => Importer<Import>;
}

/** The lock excludes inserts, so no other transaction assigns an id during the import. */
function lockStatement(table: BulkTable): string {
  return `
    set local statement_timeout = '60s';
    lock table ${table} in share row exclusive mode
  `;
}

/** Query for the last assigned id; 0 if there is none. */
export function lastIdQuery(table: SequenceTable): string {
  return `
    select (case when is_called then last_value else last_value - 1 end)::float8 as last
    from ${table}_id_seq
  `;
}

async function loadIdTracker(session: Session, table: BulkTable): Promise<IdTracker> {
  return createIdTracker((await session.first<{ last: number }>(lastIdQuery(table)))?.last ?? 0);
}

export function createBulkStore<Row, Import>(
  db: Database,
  { table, page, fromRow, createImporter }: BulkStoreParts<Row, Import>,
): BulkStore<Row, Import> {
  let dry_run_state: { readonly importer: Importer<Import>; readonly ids: IdTracker } | null = null;

  async function dryRunIn(session: Session, records: readonly Import[]) {
    dry_run_state ??= { importer: createImporter(), ids: await loadIdTracker(session, table) };
    const { importer, ids } = dry_run_state;
    await importer.prepare(session, records);
    const results = records.map((record) => importer.importOne(record, ids));
    for (const { rows } of importer.buffers) rows.length = 0;
    return results;
  }

  async function importIn(session: Session, records: readonly Import[]) {
    await session.script(lockStatement(table));
    const ids = await loadIdTracker(session, table);
    const last = ids.last();
    const importer = createImporter();
    await importer.prepare(session, records);
    const results = records.map((record) => importer.importOne(record, ids));
    for (const { into, rows } of importer.buffers) {
      if (rows.length > 0) await session.copy(into, rows);
    }
    if (ids.last() > last) {
      await session.all(`select setval('${table}_id_seq', $1::bigint)`, ids.last());
    }
    return results;
  }

  return {
    async exportPage(after, limit) {
      const rows = await db.read((session) => session.all<never>(page, after, limit));
      return rows.map(fromRow);
    },

    async import(records, dry_run) {
      if (records.length === 0) return [];
      if (dry_run) return db.read((session) => dryRunIn(session, records));
      for (let attempts = 1; ; attempts += 1) {
        try {
          const work = (session: Session) => importIn(session, records);
          return await db.transact(work, { timeout_ms: Number.POSITIVE_INFINITY });
        } catch (error) {
          if (!isForeignKeyViolation(error) || attempts === MAX_ATTEMPTS) throw error;
        }
      }
    },
  };
}
