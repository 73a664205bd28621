/** Reads orders by id. Concurrent reads share one statement, which Citus runs as one task per shard. */
import { fail } from "../../error.ts";
import type { StoredOrder } from "../../order.ts";
import type { Database, Session, Value } from "../connection.ts";
import { originalState } from "../errors.ts";
import { columns } from "../orders.ts";
import { createLookup, type Lookup } from "../reader.ts";
import { bucketOf } from "./bucket.ts";

/** Up to this many concurrent reads have a statement each. More share one. */
const MAX_ALONE = 8;

export interface LocatedOrder extends StoredOrder {
  readonly bucket: number;
}

interface Statements {
  /** Selects orders by bucket and id. */
  readonly orders: string;
  /** Selects entries of the directory by id. */
  readonly directory: string;
}

function statementsWith(bucket: string, id_in_directory: string, id: string): Statements {
  return {
    orders: `
      select bucket, ${columns}
      from orders
      where bucket = ${bucket} and id = ${id}
    `,
    directory: `
      select order_id::float8 as id, bucket
      from order_buckets
      where order_id = ${id_in_directory}
    `,
  };
}

// Citus routes a statement to a shard without planning it only if the column is compared with a parameter.
const for_one = statementsWith("$1", "$1", "$2");
const for_many = statementsWith("any($1::integer[])", "any($1::bigint[])", "any($2::bigint[])");

/**
 * Returns a row if the server of a bucket has transactions that were interrupted in their commit: prepared before
 * the server started, or more than a second ago. The table only leads to the server.
 */
const select_interrupted = `
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

function select<Row>(
  session: Session,
  statement: keyof Statements,
  ...parameters: readonly (readonly number[])[]
): Promise<readonly Row[]> {
  if (parameters[0]?.length !== 1) return session.all(for_many[statement], ...parameters);
  const values = parameters.map(([value]): Value => value ?? null);
  return session.all(for_one[statement], ...values);
}

/** Reads orders from the buckets in their ids, and the missing ones from the buckets in the directory. */
async function findOrders(
  session: Session,
  ids: readonly number[],
): Promise<ReadonlyMap<number, LocatedOrder>> {
  const buckets = ids.map(bucketOf);
  const rows = [...(await select<LocatedOrder>(session, "orders", buckets, ids))];
  const found = new Set(rows.map(({ id }) => id));
  const missing = ids.filter((id) => !found.has(id));
  if (missing.length > 0) {
    const entries = await select<{ id: number; bucket: number }>(session, "directory", missing);
    const elsewhere = entries.map(({ bucket }) => bucket);
    const their_ids = entries.map(({ id }) => id);
    if (entries.length > 0)
      rows.push(...(await select<LocatedOrder>(session, "orders", elsewhere, their_ids)));
  }
  return new Map(rows.map((row) => [row.id, row]));
}

/** @throws {AppError} unavailable if the commit of an order with this id may have been interrupted */
async function requireRecovered(session: Session, id: number): Promise<null> {
  const interrupted = await session.first(select_interrupted, bucketOf(id));
  if (interrupted !== null) fail("unavailable", "the cluster is recovering from a failure");
  return null;
}

/** @throws {AppError} unavailable if the order may exist */
export async function findOrder(session: Session, id: number): Promise<LocatedOrder | null> {
  return (await findOrders(session, [id])).get(id) ?? requireRecovered(session, id);
}

export function createOrderLookup(db: Database): Lookup<number, LocatedOrder> {
  let alone = 0;
  let shared = 0;

  async function readAlone(id: number): Promise<LocatedOrder | null> {
    alone += 1;
    try {
      return await db.readMany((session) => findOrder(session, id));
    } finally {
      alone -= 1;
    }
  }

  async function run(ids: readonly number[]) {
    if (shared === 0 && alone + ids.length <= MAX_ALONE) return ids.map(readAlone);
    shared += 1;
    try {
      const found = await db.readMany((session) => findOrders(session, ids));
      return ids.map(
        (id) => found.get(id) ?? db.readMany((session) => requireRecovered(session, id)),
      );
    } finally {
      shared -= 1;
    }
  }

  // The loss of a worker fails a shared statement, but concerns only the orders on this worker.
  return createLookup(db, run, (error) => originalState(error) !== "");
}
