/** Rows of whole tables with their ids, which a copy, an import and a check read and write in one transaction. */
import { LAST_OF_USERS } from "../../domain/change.ts";
import * as copy from "../../domain/copy.ts";
import { type Database, longTransaction, type Session } from "../server/connection.ts";
import { isReadOnly } from "../server/errors.ts";
import { type Placement, sequenceOf } from "../server/placement.ts";
import { allChanges } from "../tables/outbox.ts";

/** @param session in a transaction, whose snapshot determines the rows */
export function rowsOf(session: Session, placement: Placement): copy.CopyTarget {
  async function lastId(table: copy.CopiedTable): Promise<number> {
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
      const { columns, sortKey } = copy.copiedTables[table];
      const from = table === "changes" ? `(${allChanges}) as changes` : table;
      const select = `select ${columns.join(", ")} from ${from} order by ${sortKey.join(", ")}`;
      await session.script(`declare ${cursor} no scroll cursor for ${select}`);
      let rows: readonly copy.CopyRow[];
      do {
        rows = await session.all<copy.CopyRow>(`fetch ${copy.COPY_BATCH_ROWS} from ${cursor}`);
        yield rows;
      } while (rows.length > 0);
      await session.script(`close ${cursor}`);
    },
    lastId,
    async write(table, rows) {
      await session.insert(table, copy.copiedTables[table].columns, rows);
      const { orders } = placement.uniqueTables;
      if (table === "orders" && orders !== table)
        await session.insert(orders, ["id", "user_id", "reference"], rows);
    },
    async advanceIds(table, id) {
      // A rollback does not reset a sequence, so after a failed copy it can already be at this id.
      if (id <= (await lastId(table))) return;
      const sequence = sequenceOf(table, placement);
      await session.all(`select pg_catalog.setval('${sequence}', $1::bigint)`, id);
    },
  };
}

const tableOfIds = (table: copy.SequenceTable, { uniqueTables }: Placement) =>
  table === "tokens" ? table : uniqueTables[table];

/** @returns a statement, after which no other transaction assigns ids of the table until this one ends */
export const lockIds = (table: copy.SequenceTable, placement: Placement) =>
  `lock table ${tableOfIds(table, placement)} in share row exclusive mode`;

/** @returns the greatest id, also of records that were deleted; `null` if the sequence is not behind it */
export async function findLateId(
  session: Session,
  placement: Placement,
  table: copy.SequenceTable,
) {
  // Neither is that of tokens.
  const isOfTable = `(type > ${LAST_OF_USERS})::integer = ${["users", "orders"].indexOf(table)}`;
  const row = await session.first<{ last: number | null }>(`
    select greatest(
      (select pg_catalog.max(id) from ${tableOfIds(table, placement)}),
      (select pg_catalog.max(record_id) from changes where ${isOfTable}),
      (select pg_catalog.max(record_id) from change_outbox where ${isOfTable})
    ) as last
  `);
  const last = row?.last ?? 0;
  return last > (await rowsOf(session, placement).lastId(table)) ? last : null;
}

/** Advances sequences that are behind. Writes wait meanwhile: otherwise one could be set back. */
export async function advanceLate(
  db: Database,
  placement: Placement,
  warn?: (text: string) => void,
) {
  for (const table of copy.tablesWithSequence) {
    const find = (session: Session) => findLateId(session, placement, table);
    if ((await db.run("read", find, longTransaction)) === null) continue;
    const advance = async (session: Session) => {
      await session.script(lockIds(table, placement));
      const last = await findLateId(session, placement, table);
      if (last !== null) await rowsOf(session, placement).advanceIds(table, last);
    };
    try {
      await db.run("background", advance, { ...longTransaction, lockTimeoutMs: 10_000 });
      const unknown = "those that were deleted before the oldest change can be assigned again";
      warn?.(`the sequence of ${table} was behind their ids, and was advanced: ${unknown}`);
    } catch (error) {
      if (!isReadOnly(error)) throw error;
    }
  }
}
