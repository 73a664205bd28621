/**
 * Counts imported ids. The buckets count the ids without a record up to the last one (see `count-index.ts`): an id
 * after the last one can leave a gap, and an id before it fills a gap. No trigger counts new orders that are not
 * pending, because only an import or a copy inserts them, and the trigger would slow down every placed order.
 */

import type { Database } from "bun:sqlite";
import { fail } from "../../base/error.ts";
import { idGapProblem } from "../../domain/import-plan.ts";
import type { OrderStatus } from "../../domain/order.ts";
import type { RecordTable } from "../../domain/record.ts";
import { levelBits, prepareLastId } from "./count-index.ts";

/** Maximum number of counts in memory before they are written. */
const MAX_COUNTS = 10_000;

const levelWidths = levelBits.map((bits) => 2 ** bits);

type CountChange = Record<"level" | "bucket" | "ids", number> & { readonly list: string };

/** @returns a function that starts tracking ids within a transaction, from the current last ones */
export function prepareIdTracker(db: Database) {
  const lastId = prepareLastId(db);
  const increment = db.prepare<null, CountChange>(`
    insert into buckets (list, level, bucket, ids)
    values ($list, $level, $bucket, $ids)
    on conflict do update set ids = ids + excluded.ids
  `);
  // Not the upsert: its row would violate the CHECK that no count is negative.
  const subtract = db.prepare<null, CountChange>(`
    update buckets
    set ids = ids - $ids
    where list = $list and level = $level and bucket = $bucket
  `);

  return () => {
    const last = { users: lastId("users"), orders: lastId("orders") };
    const counts = new Map<string, CountChange>();

    /** Writes the counts. Call it after the last row. */
    function flush(): void {
      for (const { ids, ...of } of counts.values()) {
        if (ids > 0) increment.run({ ...of, ids });
        if (ids < 0) subtract.run({ ...of, ids: -ids });
      }
      counts.clear();
    }

    function addTo(list: string, level: number, bucket: number, ids: number): void {
      const key = `${list} ${level} ${bucket}`;
      const counted = counts.get(key);
      if (counted === undefined) counts.set(key, { list, level, bucket, ids });
      else counted.ids += ids;
      if (counts.size > MAX_COUNTS) flush();
    }

    /** Adds the ids from `first` to `end`, inclusive, to the counts of a list, or subtracts them. */
    function count(list: string, first: number, end: number, sign: 1 | -1): void {
      for (const [level, width] of levelWidths.entries()) {
        for (let at = first; at <= end; ) {
          const bucket = Math.floor((at - 1) / width);
          const next = Math.min((bucket + 1) * width, end) + 1;
          addTo(list, level, bucket, sign * (next - at));
          at = next;
        }
      }
    }

    /**
     * Counts the ids after the last one up to this one as without a record. Then this one is the last.
     * @throws {AppError} operator if they are too many
     */
    function skipTo(table: RecordTable, id: number): void {
      if (id <= last[table]) return;
      const problem = idGapProblem(id, last[table]);
      if (problem !== null) fail("operator", `${table}: ${problem}`);
      count(table, last[table] + 1, id, 1);
      last[table] = id;
    }

    return {
      /** Call it for each new row. @param status of an order; a user is like a pending one */
      add(table: RecordTable, id: number, status: OrderStatus = "pending"): void {
        if (id <= last[table]) {
          count(table, id, id, -1);
        } else {
          skipTo(table, id - 1);
          last[table] = id;
        }
        if (status !== "pending") count(status, id, id, 1);
      },
      skipTo,
      flush,
    };
  };
}
