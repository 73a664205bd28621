/** Writes rows of another database, and what only the layout for Citus has: buckets and totals. */
import { type CopiedTable, type CopyRow, type CopyTarget, copiedTables } from "../../copy.ts";
import { orderStatuses } from "../../order.ts";
import type { Session } from "../connection.ts";
import { BUCKETS, bucketOf } from "./bucket.ts";
import { countedOrders } from "./check.ts";
import { citusCopySourceOf } from "./copy-source.ts";

/** Characters of collected rows. */
const MAX_PENDING_LENGTH = 4 * 2 ** 20;

const countUsers = "select count(*) as users from users";
// Users that were deleted can have left slots above and below 0.
const setTotal = `
  update user_totals
  set users = case slot when 0 then $1 else 0 end
`;
const storeOrderTotals = `
  update order_totals
  set ${orderStatuses.map((name) => `${name} = counted.${name}`).join(", ")}
  from (${countedOrders}) as counted
  where counted.bucket = order_totals.bucket
`;

/** @returns the length of a row as text */
function lengthOf(row: CopyRow): number {
  return Object.values(row).reduce<number>((sum, cell) => sum + String(cell).length, 0);
}

async function copyOrders(session: Session, rows: readonly CopyRow[]): Promise<void> {
  const orders = rows.map((row) => ({
    ...row,
    order_id: Number(row["id"]),
    bucket: bucketOf(Number(row["user_id"])),
  }));
  await session.copy("orders", ["bucket", ...copiedTables.orders.columns], orders);
  const entries = orders.filter(({ order_id, bucket }) => bucketOf(order_id) !== bucket);
  if (entries.length > 0) await session.copy("order_buckets", ["order_id", "bucket"], entries);
}

/**
 * Collects rows, because a COPY takes long to start on all shards. They are written at the latest when an id sequence
 * is advanced, or rows are read.
 * @param session in a transaction that excludes other writers
 */
export function citusCopyTargetOf(session: Session): CopyTarget {
  const source = citusCopySourceOf(session);
  let pending: { readonly table: CopiedTable; readonly rows: CopyRow[]; length: number } | null =
    null;

  async function flush(): Promise<void> {
    if (pending === null) return;
    const { table, rows } = pending;
    pending = null;
    if (table === "orders") return copyOrders(session, rows);
    await session.copy(table, copiedTables[table].columns, rows);
  }

  return {
    async *read(table) {
      await flush();
      yield* source.read(table);
    },
    lastId: source.lastId,
    async write(table, rows) {
      if (rows.length === 0) return;
      if (pending?.table !== table) await flush();
      pending ??= { table, rows: [], length: 0 };
      pending.rows.push(...rows);
      pending.length += rows.reduce((sum, row) => sum + lengthOf(row), 0);
      if (pending.length > MAX_PENDING_LENGTH) await flush();
    },
    async advanceIds(table, id) {
      await flush();
      // A rollback does not reset a sequence, so after a failed copy it can already be at this id.
      if (id <= (await source.lastId(table))) return;
      const last = table === "orders" ? Math.max(1, Math.floor(id / BUCKETS)) : id;
      await session.all(`select setval('${table}_id_seq', $1::bigint)`, last);
    },
  };
}

/** Call after all rows were written. */
export async function countRows(session: Session): Promise<void> {
  const counted = await session.first<{ users: number }>(countUsers);
  await session.all(setTotal, counted?.users ?? 0);
  await session.all(storeOrderTotals);
}
