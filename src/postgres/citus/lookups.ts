/** Reads orders by id. Concurrent reads share one statement, which Citus runs as one task per shard. */
import { fail } from "../../error.ts";
import type { Order, StoredOrder } from "../../order.ts";
import type { RecordText } from "../../record.ts";
import type { Database, Session } from "../connection.ts";
import { sqlState } from "../errors.ts";
import { createLookup, type Lookup } from "../lookups.ts";
import { columns, toRecord } from "../orders.ts";
import { bucketOf } from "./bucket.ts";

/** Up to this many concurrent reads have a statement each. More share one. */
const MAX_ALONE = 8;

// Citus routes a statement to a shard without planning it only if the column is compared with a parameter.
const selectInBucket = `
  select ${columns}
  from orders
  where bucket = $1 and id = $2
`;
const selectBucket = `
  select bucket
  from order_buckets
  where order_id = $1
`;
// Not by bucket, although that would leave out shards: PostgreSQL would then look up each id in each bucket.
const selectByIds = `
  select ${columns}
  from orders
  where id = any($1::bigint[])
`;

/**
 * Returns a row if the server of a bucket has transactions that were interrupted in their commit: prepared before
 * the server started, or more than a second ago. The table only leads to the server.
 */
const selectInterrupted = `
  select bucket
  from order_totals
  where bucket = $1 and exists (
    select
    from pg_prepared_xact()
    where gid like 'citus%'
      and prepared < greatest(pg_postmaster_start_time(), now() - interval '1 second')
      and dbid = (select datid from pg_stat_get_activity(pg_backend_pid()))
  )
`;

/** @throws {AppError} unavailable if the commit of an order with this id may have been interrupted */
async function requireRecovered(session: Session, id: number): Promise<null> {
  const interrupted = await session.first(selectInterrupted, bucketOf(id));
  if (interrupted !== null) fail("unavailable", "the cluster is recovering from a failure");
  return null;
}

/** Reads an order from the bucket in its id, or in the directory. @throws {AppError} unavailable if it may exist */
export async function findOrder(session: Session, id: number): Promise<StoredOrder | null> {
  const findIn = (bucket: number) => session.first<StoredOrder>(selectInBucket, bucket, id);
  const found = await findIn(bucketOf(id));
  if (found !== null) return found;
  const entry = await session.first<{ bucket: number }>(selectBucket, id);
  return (entry && (await findIn(entry.bucket))) ?? requireRecovered(session, id);
}

export function createOrderLookup(db: Database): Lookup<number, RecordText<Order>> {
  let alone = 0;
  let shared = 0;

  async function readAlone(id: number): Promise<RecordText<Order> | null> {
    alone += 1;
    try {
      const find = (session: Session) => findOrder(session, id);
      const order = await db.runAdmitted("read", find);
      return order && toRecord(order);
    } finally {
      alone -= 1;
    }
  }

  async function run(ids: readonly number[]) {
    // Also after a shared statement has failed: the loss of a worker concerns only the orders on this worker.
    const isAlone = ids.length === 1 || (shared === 0 && alone + ids.length <= MAX_ALONE);
    if (isAlone) return ids.map(readAlone);
    shared += 1;
    try {
      const rows = await db.runAdmitted("read", (session) =>
        session.all<StoredOrder>(selectByIds, ids),
      );
      const found = new Map(rows.map((row) => [row.id, row]));
      return ids.map((id) => {
        const row = found.get(id);
        if (row !== undefined) return toRecord(row);
        return db.runAdmitted("read", (session) => requireRecovered(session, id));
      });
    } finally {
      shared -= 1;
    }
  }

  return createLookup(db, { run, mayBeCausedByOneItem: (error) => sqlState(error) !== "" });
}
