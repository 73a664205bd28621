/** Export and import, with the totals and the directory of ids that only the layout for Citus has. */
import type { CopyRow, CopyTarget } from "../../copy.ts";
import { type Order, orderStatuses, parseStoredOrder, type StoredOrder } from "../../order.ts";
import type { Sort } from "../../page.ts";
import type { Store } from "../../store.ts";
import type { Database, Session } from "../connection.ts";
import { createBulkStores } from "../import.ts";
import { columns } from "../orders.ts";
import { recordCreated } from "../outbox.ts";
import { bucketOf } from "./bucket.ts";
import { citusCopyTargetOf } from "./copy-target.ts";
import { lockIds } from "./id-lock.ts";
import { recordOrders } from "./outbox.ts";
import { scanOrders } from "./scan.ts";
import { addToTotal } from "./users.ts";

/** `$1` is a JSON array of changes, one per bucket. */
const addToTotals = `
  insert into order_totals (bucket, ${orderStatuses.join(", ")})
  select bucket, ${orderStatuses.join(", ")}
  from json_to_recordset($1::text::json) as changes (
    bucket integer, ${orderStatuses.map((name) => `${name} bigint`).join(", ")}
  )
  on conflict (bucket) do update
  set ${orderStatuses.map((name) => `${name} = order_totals.${name} + excluded.${name}`).join(", ")}
`;

/** @returns the number of orders by bucket and status, in the order of buckets */
function countByBucket(rows: readonly CopyRow[]) {
  const noOrders = Object.fromEntries(orderStatuses.map((status) => [status, 0]));
  const buckets = new Map<number, Record<string, number>>();
  for (const row of rows) {
    const bucket = bucketOf(Number(row["user_id"]));
    const counts = buckets.get(bucket) ?? { bucket, ...noOrders };
    const status = String(row["status"]);
    counts[status] = (counts[status] ?? 0) + 1;
    buckets.set(bucket, counts);
  }
  return [...buckets.entries()].sort(([one], [other]) => one - other).map(([, counts]) => counts);
}

function importTargetOf(session: Session): CopyTarget {
  const target = citusCopyTargetOf(session);
  return {
    ...target,
    async write(table, rows) {
      await target.write(table, rows);
      if (rows.length === 0) return;
      if (table === "users") await session.all(addToTotal, rows.length);
      if (table === "orders") {
        await session.all(addToTotals, JSON.stringify(countByBucket(rows)));
      }
    },
  };
}

/** Reads the pages of an export, which follow each other, in one scan. */
function createOrderPages(db: Database) {
  const read: Session["all"] = (statement, ...values) =>
    db.run("read", (session) => session.all(statement, ...values));
  const scanAfter = (id: number, sort: Sort) =>
    scanOrders<StoredOrder>(read, `select ${columns} from orders`, id, sort);
  let scan: ReturnType<typeof scanAfter> | null = null;
  let scanSort: Sort = "id";
  let ahead: readonly StoredOrder[] = [];
  let position = 0;
  return async (after: number, limit: number, sort: Sort): Promise<readonly Order[]> => {
    if (scan === null || after !== position || sort !== scanSort) {
      scan = scanAfter(after, sort);
      scanSort = sort;
      ahead = [];
    }
    if (ahead.length === 0) ahead = (await scan.next()).value ?? [];
    const page = ahead.slice(0, limit);
    ahead = ahead.slice(limit);
    position = page.at(-1)?.id ?? -1;
    return page.map(parseStoredOrder);
  };
}

export function createCitusBulkStores(db: Database, now: () => Date): Store["bulk"] {
  const { users, orders } = createBulkStores(db, now, {
    targetOf: importTargetOf,
    recordCreated: (session, type, created, time) =>
      (type === "order.created" ? recordOrders : recordCreated)(session, type, created, time),
    lockIds,
  });
  return { users, orders: { ...orders, exportPage: createOrderPages(db) } };
}
