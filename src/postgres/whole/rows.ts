/** Many rows of a table with their ids, which an import and a copy write in one transaction. */
import { type CopiedTable, type CopyTarget, copiedTables } from "../../domain/copy.ts";
import type { Session } from "../server/connection.ts";
import { type Placement, sequenceOf } from "../server/placement.ts";

/** @returns the part of a {@link CopyTarget} that does not read rows */
export function rowWriterOf(session: Session, placement: Placement): Omit<CopyTarget, "read"> {
  async function lastId(table: CopiedTable): Promise<number> {
    const last = await session.first<{ last: number }>(`
      select (case when is_called then last_value else last_value - 1 end) as last
      from ${sequenceOf(table, placement)}
    `);
    return last?.last ?? 0;
  }

  return {
    lastId,
    async write(table, rows) {
      await session.insert(table, copiedTables[table].columns, rows);
      const also = placement.alsoCopied[table];
      if (also === undefined) return;
      await session.insert(also.table, also.columns, rows);
      await session.script(also.statement);
    },
    async advanceIds(table, id) {
      // A rollback does not reset a sequence, so after a failed copy it can already be at this id.
      if (id <= (await lastId(table))) return;
      await session.all(`select setval('${sequenceOf(table, placement)}', $1::bigint)`, id);
    },
  };
}
