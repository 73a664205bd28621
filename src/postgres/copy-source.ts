/** All rows of a database as they are at one moment, while others write. */
import {
  type CopiedTable,
  type CopyRow,
  type CopySource,
  copied_tables,
  mapErrors,
} from "../copy.ts";
import type { Database, Session } from "./connection.ts";
import { describePostgresError } from "./errors.ts";
import { lastIdQuery } from "./import.ts";

/** Rows that are asked for at once: some 30 MB where they are as large as can be. */
const BATCH_ROWS = 1000;

/** Come as doubles, which hold all that the API shows. */
const integers: ReadonlySet<string> = new Set(["id", "user_id", "order_id", "total", "version"]);

function selectFrom(table: CopiedTable): string {
  const copied = copied_tables[table];
  const columns = copied.columns
    .map((name) => (integers.has(name) ? `${name}::float8 as ${name}` : name))
    .join(", ");
  // With the table: the name alone would be that of the double.
  const order = copied.sort_key.map((name) => `${table}.${name}`).join(", ");
  return `select ${columns} from ${table} order by ${order}`;
}

/** The rows as this transaction sees them. */
export function copySourceOf(session: Session): CopySource {
  return {
    async count(table) {
      const count = `select count(*)::float8 as rows from ${table}`;
      return (await session.first<{ rows: number }>(count))?.rows ?? 0;
    },
    async *read(table) {
      // A name for each: what is fetched from it is prepared, with the columns of this one.
      const cursor = `copied_${table}`;
      await session.script(`declare ${cursor} no scroll cursor for ${selectFrom(table)}`);
      let rows: readonly CopyRow[];
      do {
        rows = await session.all<CopyRow>(`fetch ${BATCH_ROWS} from ${cursor}`);
        yield rows;
      } while (rows.length > 0);
      await session.script(`close ${cursor}`);
    },
    async lastId(table) {
      return (await session.first<{ last: number }>(lastIdQuery(table)))?.last ?? 0;
    },
  };
}

/** No bound: it waits for the other database, and the other for it. */
export const no_timeouts = `
  set local statement_timeout = 0;
  set local idle_in_transaction_session_timeout = 0
`;

/** @param name of the database, for the operator @see Store.snapshot */
export async function withCopySource<Result>(
  db: Database,
  name: string,
  work: (source: CopySource) => Promise<Result>,
): Promise<Result> {
  const explain = (error: unknown) => describePostgresError(`Cannot read ${name}`, error);
  let working: Promise<Result> | null = null;
  const run = async (session: Session) => {
    await session.script(no_timeouts);
    working = work(mapErrors(copySourceOf(session), explain));
    return working;
  };
  const mode = "isolation level repeatable read read only";
  try {
    return await db.transact(run, { access: "read", mode, timeout_ms: Number.POSITIVE_INFINITY });
  } catch (error) {
    // With the connection the transaction ends at once, and `work` a little later, which tells more.
    return await (working ?? Promise.reject(explain(error)));
  }
}
