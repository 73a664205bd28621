/**
 * Reads all orders by id. A query with a limit alone would make every shard return as many rows as the
 * limit, so the rows come in ranges of ids, whose width follows from how many rows the previous range had.
 */
import { maxId, type Sort } from "../../page.ts";
import type { Session } from "../connection.ts";
import { BUCKETS } from "./bucket.ts";

const lastOrder = "select coalesce(max(id), 0) as id from orders";

/** Rows per read. With rows of the maximum size, these have about 30 MB. */
export const MAX_ROWS = 1000;

/**
 * @param select the start of a statement that reads `orders`
 * @param after the id after which to begin; 0 for the first order
 */
export async function* scanOrders<Row extends { readonly id?: unknown }>(
  read: Session["all"],
  select: string,
  after: number,
  sort: Sort = "id",
): AsyncGenerator<readonly Row[]> {
  const ascending = sort === "id";
  const ordersInRange = `
    ${select}
    where orders.id > $1 and orders.id <= $2
    order by orders.id ${ascending ? "asc" : "desc"}
    limit $3
  `;
  const lastId = (await read<{ id: number }>(lastOrder))[0]?.id ?? 0;
  // New orders have one id in 1024.
  let width = BUCKETS * MAX_ROWS;
  /** The ids that have not been read are above `low` and not above `high`. */
  let low = ascending ? after : 0;
  let high = ascending ? lastId : Math.min(lastId, maxId({ after }));
  while (low < high) {
    const start = ascending ? low : Math.max(low, high - width);
    const end = ascending ? Math.min(high, low + width) : high;
    const rows = await read<Row>(ordersInRange, start, end, MAX_ROWS);
    if (rows.length > 0) yield rows;
    const isComplete = rows.length < MAX_ROWS;
    const lastRead = Number(rows.at(-1)?.id);
    const remaining = high - low;
    if (ascending) low = isComplete ? end : lastRead;
    else high = isComplete ? start : lastRead - 1;
    // Few ranges reach the limit, with which every shard reads more rows than are used.
    const wantedRows = MAX_ROWS / 2;
    const readIds = remaining - (high - low);
    const estimate = (readIds * wantedRows) / Math.max(rows.length, 1);
    width = Math.max(1, Math.ceil(Math.min(estimate, 8 * width)));
  }
}
