/** What the transfers of users and of orders share: one transaction a batch, and the trial. */
import type { SequenceTable } from "../copy.ts";
import { sortMembers } from "../idempotency.ts";
import type { BulkStore, ImportResult } from "../import.ts";
import type { Database, Session } from "./connection.ts";
import type { Cell } from "./copy-format.ts";
import { isForeignKeyViolation } from "./errors.ts";

/** How often a batch is tried when the user of an order goes while it is taken. */
const MAX_ATTEMPTS = 3;

export type BulkTable = "users" | "orders";

/** The ids of one table, given from the last one on. */
export interface IdTracker {
  /** The last one that was given; 0 for none. */
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

/** Rows to be written. */
export interface CopyBuffer {
  /** The table and its columns. */
  readonly into: string;
  readonly rows: Cell[][];
}

/** Takes records one after the other, and remembers what it took. */
export interface Importer<Import> {
  /** Looks up all that these records can meet; to be called before they are taken. */
  prepare(session: Session, records: readonly Import[]): Promise<void>;
  importOne(record: Import, ids: IdTracker): ImportResult;
  /** What it took, in the order in which it is to be written. */
  readonly buffers: readonly CopyBuffer[];
}

/**
 * What is kept of a record to tell it from another, whatever the order of the members: a trial has to
 * remember all that it was given. 64 bits are enough against chance.
 */
export function digest(record: unknown): bigint {
  return BigInt(Bun.hash(JSON.stringify(sortMembers(record))));
}

interface BulkStoreParts<Row, Import> {
  readonly table: BulkTable;
  /** The records with an id behind `$1`, `$2` at most. */
  readonly page: string;
  readonly fromRow: (row: never) => Row;
  readonly createImporter: () => Importer<Import>;
}

/** Inserts take their ids under the lock that this waits for: nobody takes one meanwhile. */
function lockStatement(table: BulkTable): string {
  return `
    set local statement_timeout = '60s';
    lock table ${table} in share row exclusive mode
  `;
}

/** The last id that was given; 0 for none. */
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
