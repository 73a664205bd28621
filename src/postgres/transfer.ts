/** What the transfers of users and of orders share: one transaction a batch, and the trial. */
import type { NumberedTable } from "../copy.ts";
import { canonical } from "../idempotency.ts";
import type { Imported, Transfer } from "../transfer.ts";
import type { Database, Session } from "./connection.ts";
import type { Cell } from "./copy.ts";
import { isForeignKeyViolation } from "./failures.ts";

/** How often a batch is tried when the user of an order goes while it is taken. */
const MAX_TRIES = 3;

export type Table = "users" | "orders";

/** The ids of one table, given from the last one on. */
export interface Ids {
  /** The last one that was given; 0 for none. */
  last(): number;
  give(id: number): void;
}

function idsFrom(last: number): Ids {
  let highest = last;
  return {
    last: () => highest,
    give(id) {
      highest = Math.max(highest, id);
    },
  };
}

/** Rows to be written. */
export interface Copy {
  /** The table and its columns. */
  readonly into: string;
  readonly rows: Cell[][];
}

/** Takes records one after the other, and remembers what it took. */
export interface Taker<Import> {
  /** Looks up all that these records can meet; to be called before they are taken. */
  prepare(session: Session, records: readonly Import[]): Promise<void>;
  take(record: Import, ids: Ids): Imported;
  /** What it took, in the order in which it is to be written. */
  readonly copies: readonly Copy[];
}

/**
 * What is kept of a record to tell it from another, whatever the order of the members: a trial has to
 * remember all that it was given. 64 bits are enough against chance.
 */
export function digest(record: unknown): bigint {
  return BigInt(Bun.hash(JSON.stringify(canonical(record))));
}

interface Parts<Row, Import> {
  readonly table: Table;
  /** The records with an id behind `$1`, `$2` at most. */
  readonly page: string;
  readonly fromRow: (row: never) => Row;
  readonly createTaker: () => Taker<Import>;
}

/** Inserts take their ids under the lock that this waits for: nobody takes one meanwhile. */
function lock(table: Table): string {
  return `
    set local statement_timeout = '60s';
    lock table ${table} in share row exclusive mode
  `;
}

/** The last id that was given; 0 for none. */
export function lastId(table: NumberedTable): string {
  return `
    select (case when is_called then last_value else last_value - 1 end)::float8 as last
    from ${table}_id_seq
  `;
}

async function idsOf(session: Session, table: Table): Promise<Ids> {
  return idsFrom((await session.first<{ last: number }>(lastId(table)))?.last ?? 0);
}

export function createTransfer<Row, Import>(
  db: Database,
  { table, page, fromRow, createTaker }: Parts<Row, Import>,
): Transfer<Row, Import> {
  let trial: { readonly taker: Taker<Import>; readonly ids: Ids } | null = null;

  async function tryIn(session: Session, records: readonly Import[]) {
    trial ??= { taker: createTaker(), ids: await idsOf(session, table) };
    const { taker, ids } = trial;
    await taker.prepare(session, records);
    const results = records.map((record) => taker.take(record, ids));
    for (const { rows } of taker.copies) rows.length = 0;
    return results;
  }

  async function importIn(session: Session, records: readonly Import[]) {
    await session.script(lock(table));
    const ids = await idsOf(session, table);
    const last = ids.last();
    const taker = createTaker();
    await taker.prepare(session, records);
    const results = records.map((record) => taker.take(record, ids));
    for (const { into, rows } of taker.copies) {
      if (rows.length > 0) await session.copy(into, rows);
    }
    if (ids.last() > last) {
      await session.all(`select setval('${table}_id_seq', $1::bigint)`, ids.last());
    }
    return results;
  }

  return {
    async walk(after, limit) {
      const rows = await db.read((session) => session.all<never>(page, after, limit));
      return rows.map(fromRow);
    },

    async import(records, dry) {
      if (records.length === 0) return [];
      if (dry) return db.read((session) => tryIn(session, records));
      for (let tries = 1; ; tries += 1) {
        try {
          const work = (session: Session) => importIn(session, records);
          return await db.transact(work, { patience_ms: Number.POSITIVE_INFINITY });
        } catch (error) {
          if (!isForeignKeyViolation(error) || tries === MAX_TRIES) throw error;
        }
      }
    },
  };
}
