/**
 * Reads all orders by ascending id. A query with a limit alone would make every shard return as many rows as the
 * limit, so the rows come in ranges of ids, whose width follows from how many rows the previous range had.
 */
import type { Session } from "../connection.ts";
import { BUCKETS } from "./bucket.ts";

const lastOrder = "select coalesce(max(id), 0)::float8 as id from orders";

/** Rows per read. With rows of the maximum size, these have about 30 MB. */
export const MAX_ROWS = 1000;

/**
 * @param select the start of a statement that reads `orders`
 * @param after the id after which to begin
 */
export async function* scanOrders<Row extends { readonly id?: unknown }>(
  read: Session["all"],
  select: string,
  after: number,
): AsyncGenerator<readonly Row[]> {
  const ordersInRange = `
    ${select}
    where orders.id > $1 and orders.id <= $2
    order by orders.id
    limit $3
  `;
  const lastId = (await read<{ id: number }>(lastOrder))[0]?.id ?? 0;
  // New orders have one id in 1024.
  let width = BUCKETS * MAX_ROWS;
  for (let position = after; position < lastId; ) {
    const end = Math.min(position + width, lastId);
    const rows = await read<Row>(ordersInRange, position, end, MAX_ROWS);
    if (rows.length > 0) yield rows;
    const readUpTo = rows.length < MAX_ROWS ? end : Number(rows.at(-1)?.id);
    // Few ranges reach the limit, with which every shard reads more rows than are used.
    const wantedRows = MAX_ROWS / 2;
    const estimate = ((readUpTo - position) * wantedRows) / Math.max(rows.length, 1);
    width = Math.max(1, Math.ceil(Math.min(estimate, 8 * width)));
    position = readUpTo;
  }
}
