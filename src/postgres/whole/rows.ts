/** Rows of whole tables with their ids, which a copy, an import and a check read and write in one transaction. */
import {
  COPY_BATCH_ROWS,
  type CopiedTable,
  type CopyRow,
  type CopyTarget,
  copiedTables,
} from "../../domain/copy.ts";
import type { Session } from "../server/connection.ts";
import { type Placement, sequenceOf } from "../server/placement.ts";
import { allChanges } from "../tables/outbox.ts";

/** @param session in a transaction, whose snapshot determines the rows */
export function rowsOf(session: Session, placement: Placement): CopyTarget {
  async function lastId(table: CopiedTable): Promise<number> {
    const last = await session.first<{ last: number }>(`
      select (case when is_called then last_value else last_value - 1 end) as last
      from ${sequenceOf(table, placement)}
    `);
    return last?.last ?? 0;
  }

  return {
    async *read(table) {
      // One cursor name per table: the prepared FETCH has the columns of one table.
      const cursor = `copied_${table}`;
      const { columns, sortKey } = copiedTables[table];
      const from = table === "changes" ? `(${allChanges}) as changes` : table;
      const select = `select ${columns.join(", ")} from ${from} order by ${sortKey.join(", ")}`;
      await session.script(`declare ${cursor} no scroll cursor for ${select}`);
      let rows: readonly CopyRow[];
      do {
        rows = await session.all<CopyRow>(`fetch ${COPY_BATCH_ROWS} from ${cursor}`);
        yield rows;
      } while (rows.length > 0);
      await session.script(`close ${cursor}`);
    },
    lastId,
    async write(table, rows) {
      await session.insert(table, copiedTables[table].columns, rows);
      const also = table === "orders" ? placement.alsoCopied : null;
      if (also === null) return;
      await session.insert(also.table, also.columns, rows);
      await session.script(also.statement);
    },
    async advanceIds(table, id) {
      // A rollback does not reset a sequence, so after a failed copy it can already be at this id.
      if (id <= (await lastId(table))) return;
      const sequence = sequenceOf(table, placement);
      await session.all(`select pg_catalog.setval('${sequence}', $1::bigint)`, id);
    },
  };
}
