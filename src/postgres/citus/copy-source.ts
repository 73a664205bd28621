/** Reads all rows of a database in pages by sort key: Citus would collect the rows of a cursor on the coordinator. */
import { type CopiedTable, type CopyRow, type CopySource, copiedTables } from "../../copy.ts";
import type { Session, Value } from "../connection.ts";
import { copySourceOf, selectColumns } from "../copy-source.ts";
import { BUCKETS } from "./bucket.ts";
import { MAX_ROWS, scanOrders } from "./scan.ts";

/** One connection per server, so that there is one snapshot per server. */
const oneConnection = "set local citus.max_adaptive_executor_pool_size = 1";
/** Reads from every shard, so the snapshots of all servers are taken within milliseconds. */
const takeSnapshots = "select count(*) from order_totals";

function pageStatement(table: CopiedTable, isFirst: boolean): string {
  const keys = copiedTables[table].sortKey;
  const values = keys.map((_, at) => `$${at + 1}`);
  const where = isFirst ? "" : `where (${keys.join(", ")}) > (${values.join(", ")})`;
  return `${selectColumns(table)} ${where} order by ${keys.join(", ")} limit ${MAX_ROWS}`;
}

const countOutbox = "select count(*) as rows from order_outbox";
const selectOutbox = `
  select
    type, record_id, version, status, token,
    created_at
  from order_outbox
  order by order_outbox.record_id, order_outbox.version
`;

/** @param session in a transaction */
export function citusCopySourceOf(session: Session): CopySource {
  const source = copySourceOf(session);

  /** Reads the changes of orders that have no ids yet, with those that they would get now. */
  async function readOutbox(lastId: number): Promise<readonly CopyRow[]> {
    const rows = await session.all<CopyRow>(selectOutbox);
    return rows.map((row, at) => ({ id: lastId + 1 + at, ...row }));
  }

  return {
    async count(table) {
      const rows = await source.count(table);
      if (table !== "changes") return rows;
      return rows + ((await session.first<{ rows: number }>(countOutbox))?.rows ?? 0);
    },
    async *read(table) {
      if (table === "orders") {
        yield* scanOrders<CopyRow>(session.all, selectColumns("orders"), 0);
        return;
      }
      let lastId = 0;
      let rows = await session.all<CopyRow>(pageStatement(table, true));
      while (rows.length > 0) {
        yield rows;
        const last = rows.at(-1);
        const values = copiedTables[table].sortKey.map((name): Value => last?.[name] ?? null);
        lastId = Number(last?.["id"]);
        rows = await session.all<CopyRow>(pageStatement(table, false), ...values);
      }
      if (table === "changes") yield await readOutbox(lastId);
    },
    async lastId(table) {
      const last = await source.lastId(table);
      // The sequence of orders gives numbers, and ids up to this one may have been made of them.
      return table === "orders" && last > 0 ? last * BUCKETS + BUCKETS - 1 : last;
    },
  };
}

/** Begins to read. The session must be in a transaction with `repeatable read`. */
export async function openCitusCopySource(session: Session): Promise<CopySource> {
  await session.script(oneConnection);
  await session.all(takeSnapshots);
  return citusCopySourceOf(session);
}
