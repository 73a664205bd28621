import { type IndexedSum, MAX_SUMS, SUM_MS, type SumOrders, sumsText } from "../../domain/sums.ts";
import type { Database } from "../server/connection.ts";

/** A sum that is too large becomes the first integer that is. One row more than allowed is enough. */
const statement = `
  select
    pg_catalog.width_bucket(created_at collate "C", $1::text[] collate "C") - 1 as at,
    currency,
    status,
    pg_catalog.count(*) as orders,
    least(pg_catalog.sum(total), 9007199254740992)::bigint as total,
    least(pg_catalog.sum(refunded), 9007199254740992)::bigint as refunded
  from orders
  where created_at collate "C" >= $2::text and created_at collate "C" < $3::text
  group by at, currency, status
  limit ${MAX_SUMS + 1}
`;

export function createSumOrders(db: Database): SumOrders {
  return async (bounds, client) => {
    const sums = await db.run(
      "list",
      async (session) => {
        await session.script(`set local statement_timeout = ${SUM_MS}`);
        // Whole tables are read, and a plan for any period would not know how much of them.
        await session.script("set local enable_seqscan = on");
        const period = [bounds[0] ?? "", bounds.at(-1) ?? ""];
        return session.all<IndexedSum>(statement, bounds, ...period);
      },
      { transaction: true, timeoutMs: SUM_MS + 5_000, client },
    );
    return sumsText(bounds, sums);
  };
}
