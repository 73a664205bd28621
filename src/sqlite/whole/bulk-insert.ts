/**
 * Inserts the rows of an import or a copy, which bring their own ids, and counts these. The buckets count the ids without a
 * record up to the last one (see `count-index.ts`): an id after the last one can leave a gap, and an id before it fills a
 * gap. No trigger counts new orders that are not pending, because only an import or a copy inserts them, and the trigger
 * would slow down every placed order.
 */
import type { Database } from "bun:sqlite";
import { fail } from "../../base/error.ts";
import { type CopiedTable, type CopyRow, copiedTables } from "../../domain/copy.ts";
import { idGapProblem } from "../../domain/import-plan.ts";
import type { RecordTable } from "../../domain/record.ts";
import { NEXT_CHANGE } from "../tables/changes.ts";
import { levelBits, prepareLastId } from "../tables/count-index.ts";
import { blockEnd, prepareStoreRuns } from "../tables/time-runs.ts";

/** Maximum number of counts and of blocks in memory before they are written. */
const MAX_COUNTS = 10_000;

type CountChange = Record<"level" | "bucket" | "ids", number> & { readonly list: string };

/** @returns a function that starts inserting within a transaction */
export function prepareBulkInsert(db: Database) {
  const inserts = new Map(
    Object.entries(copiedTables).map(([table, { columns }]) => {
      const isRecord = table === "users" || table === "orders";
      const names = [...columns, ...(isRecord ? ["last_change"] : [])];
      const values = [...columns.map((name) => `$${name}`), ...(isRecord ? [NEXT_CHANGE] : [])];
      const sql = `insert into ${table} (${names.join(", ")}) values (${values.join(", ")})`;
      return [table, db.prepare<null, CopyRow>(sql)];
    }),
  );
  const lastId = prepareLastId(db);
  // Not an upsert: a row with a negative number would violate the CHECK of the table.
  const add = db.prepare<null, CountChange>(`
    update buckets
    set ids = ids + $ids
    where list = $list and level = $level and bucket = $bucket
  `);
  const create = db.prepare<null, CountChange>(`
    insert into buckets (list, level, bucket, ids)
    values ($list, $level, $bucket, $ids)
  `);
  const storeRuns = prepareStoreRuns(db);

  return () => {
    const last = { users: lastId("users"), orders: lastId("orders") };
    const counts = new Map<string, CountChange>();
    /** The ends of those with a new order, and of the one with the next id, which may be skipped. */
    const blocks = new Set([blockEnd(last.orders + 1)]);

    /** Writes the counts, and the runs of full blocks. Call it after the last row. */
    function finish(): void {
      for (const change of counts.values()) if (add.run(change).changes === 0) create.run(change);
      counts.clear();
      for (const end of blocks) {
        if (end > last.orders) continue;
        storeRuns(end);
        blocks.delete(end);
      }
    }

    /** Adds the ids from `first` to `end`, inclusive, to the counts of a list, or subtracts them. */
    function count(list: string, first: number, end: number, sign: 1 | -1): void {
      for (const [level, bits] of levelBits.entries()) {
        const width = 2 ** bits;
        for (let at = first; at <= end; ) {
          const bucket = Math.floor((at - 1) / width);
          const next = Math.min((bucket + 1) * width, end) + 1;
          const key = `${list} ${level} ${bucket}`;
          const change = counts.getOrInsert(key, { list, level, bucket, ids: 0 });
          change.ids += sign * (next - at);
          if (counts.size + blocks.size > MAX_COUNTS) finish();
          at = next;
        }
      }
    }

    /** Counts the ids after the last one as without a record. @throws {AppError} operator if they are too many */
    function skipTo(table: RecordTable, id: number): void {
      if (id <= last[table]) return;
      const problem = idGapProblem(id, last[table]);
      if (problem !== null) fail("operator", `${table}: ${problem}`);
      count(table, last[table] + 1, id, 1);
      last[table] = id;
    }

    return {
      /** Call it for the rows that this one refers to first. */
      insert(table: CopiedTable, row: CopyRow): void {
        if (table === "users" || table === "orders") {
          const id = Number(row["id"]);
          const { status = "pending" } = row;
          if (id <= last[table]) count(table, id, id, -1);
          skipTo(table, id - 1);
          last[table] = Math.max(last[table], id);
          // A CHECK of the table rejects an unknown status.
          if (status !== "pending") count(String(status), id, id, 1);
          if (table === "orders") blocks.add(blockEnd(id));
        }
        inserts.get(table)?.run(row);
      },
      skipTo,
      finish,
    };
  };
}
