/** Reads all rows of a database from one snapshot. Writes can continue. */
import {
  type CopiedTable,
  type CopyRow,
  type CopySource,
  copiedTables,
  withMappedErrors,
} from "../../domain/copy.ts";
import { type Database, longTransaction, type Session } from "../server/connection.ts";
import { describePostgresError } from "../server/errors.ts";
import type { Placement } from "../server/placement.ts";
import { allChanges } from "../tables/outbox.ts";
import { rowWriterOf } from "./row-writer.ts";

/** Rows per fetch. With rows of the maximum size, a batch has about 30 MB. */
const BATCH_ROWS = 1000;

function rowsOf(table: CopiedTable): string {
  return table === "changes" ? `(${allChanges}) as changes` : table;
}

/** @param session in a transaction, whose snapshot determines the rows */
export function copySourceOf(session: Session, placement: Placement): CopySource {
  return {
    async *read(table) {
      // One cursor name per table: the prepared FETCH has the columns of one table.
      const cursor = `copied_${table}`;
      const { columns, sortKey } = copiedTables[table];
      const select = `select ${columns.join(", ")} from ${rowsOf(table)} order by ${sortKey.join(", ")}`;
      await session.script(`declare ${cursor} no scroll cursor for ${select}`);
      let rows: readonly CopyRow[];
      do {
        rows = await session.all<CopyRow>(`fetch ${BATCH_ROWS} from ${cursor}`);
        yield rows;
      } while (rows.length > 0);
      await session.script(`close ${cursor}`);
    },
    lastId: rowWriterOf(session, placement).lastId,
  };
}

/** During a copy, each database waits for the other. */
export const noIdleTimeout = "set local idle_in_transaction_session_timeout = 0";

/**
 * @param name name of the database in messages for the operator
 * @see Store.withCopySource
 */
export async function withCopySource<Result>(
  db: Database,
  placement: Placement,
  name: string,
  work: (source: CopySource) => Promise<Result>,
): Promise<Result> {
  const explain = (error: unknown) => describePostgresError(`Cannot read ${name}`, error);
  let working: Promise<Result> | null = null;
  const run = async (session: Session) => {
    await session.script(noIdleTimeout);
    // From each shard, so that the snapshots of all servers of a cluster are taken at about the same time.
    await session.all("select from orders where id = 0");
    working = work(withMappedErrors(copySourceOf(session, placement), explain));
    return working;
  };
  try {
    return await db.run("read", run, longTransaction);
  } catch (error) {
    // If the connection is lost, the transaction fails first. The error of `work` follows and is more specific.
    return await (working ?? Promise.reject(explain(error)));
  }
}
