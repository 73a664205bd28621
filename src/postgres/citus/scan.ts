/**
 * Reads all orders by ascending id. A query with a limit alone would make every shard return as many rows as the
 * limit, so the rows come in ranges of ids, whose width follows from how many rows the previous range had.
 */
import type { Value } from "../connection.ts";
import { BUCKETS } from "./bucket.ts";

const last_order = "select coalesce(max(id), 0)::float8 as id from orders";

/** Runs a statement. @see Session.all */
type Read = <Row>(statement: string, ...values: Value[]) => Promise<readonly Row[]>;

/** @returns the statement of `scanOrders` for these columns */
export function rangeStatement(select: string): string {
  return `
    ${select}
    where orders.id > $1 and orders.id <= $2
    order by orders.id
    limit $3
  `;
}

/**
 * @param after the id after which to begin
 * @param max_rows maximum number of rows of a batch
 */
export async function* scanOrders<Row extends { readonly id?: unknown }>(
  read: Read,
  statement: string,
  after: number,
  max_rows: number,
): AsyncGenerator<readonly Row[]> {
  const last_id = (await read<{ id: number }>(last_order))[0]?.id ?? 0;
  // New orders have one id in 1024.
  let width = BUCKETS * max_rows;
  for (let position = after; position < last_id; ) {
    const end = Math.min(position + width, last_id);
    const rows = await read<Row>(statement, position, end, max_rows);
    if (rows.length > 0) yield rows;
    const read_up_to = rows.length < max_rows ? end : Number(rows.at(-1)?.id);
    // Few ranges reach the limit, with which every shard reads more rows than are used.
    const wanted_rows = max_rows / 2;
    const estimate = ((read_up_to - position) * wanted_rows) / Math.max(rows.length, 1);
    width = Math.max(1, Math.ceil(Math.min(estimate, 8 * width)));
    position = read_up_to;
  }
}
