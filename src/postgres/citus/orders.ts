/** Orders are distributed by bucket. Every statement on one order is performed by one shard. */
import { fail } from "../../error.ts";
import {
  newOrder,
  type OrderStatus,
  type OrderStore,
  order_statuses,
  type StoredOrder,
} from "../../order.ts";
import type { Session } from "../connection.ts";
import type { StoreContext } from "../context.ts";
import { isForeignKeyViolation } from "../errors.ts";
import { columns, createOrderStore, json, order_creates, toRecord } from "../orders.ts";
import { existing_users } from "../users.ts";
import { BUCKETS, bucketOf } from "./bucket.ts";
import { prepareCitusCreate } from "./creates.ts";
import { prepareCitusList } from "./lists.ts";
import { createOrderLookup, findOrder } from "./lookups.ts";

/** For lists of all users: every shard reads as many ids as the offset. @see docs/citus.md */
const MAX_OFFSET = 10_000;

// Both rows are on one shard, so the transaction of the statement ends without a two-phase commit.
const insert_order = `
  with inserted as (
    insert into orders (
      bucket, id, user_id, currency, items, total, status, metadata, version, created_at,
      updated_at
    )
    values ($1, $2, $3, $4, $5, $6, 'pending', $7, 1, $8, $8)
  )
  update order_totals
  set pending = pending + 1
  where bucket = $1
`;
const insert_orders = `
  insert into orders (
    bucket, id, user_id, currency, items, total, status, metadata, version, created_at, updated_at
  )
  select bucket, id, user_id, currency, items, total, 'pending', metadata, 1, created_at, created_at
  from json_to_recordset($1::text::json) as input (
    bucket integer, id bigint, user_id bigint, currency text, items text, total bigint,
    metadata text, created_at text
  )
`;
/** `$1` is a JSON array of new orders by bucket, and `$2` are the buckets. */
const count_orders = `
  update order_totals
  set pending = order_totals.pending + added.orders
  from json_to_recordset($1::text::json) as added (bucket integer, orders bigint)
  where order_totals.bucket = added.bucket and order_totals.bucket = any($2::integer[])
`;
const update_order = `
  update orders
  set status = $4, metadata = $5, version = version + 1, updated_at = $6
  where bucket = $1 and id = $2 and version = $3
  returning ${columns}
`;

/** Also changes the totals of both statuses. */
function moveStatement(from: OrderStatus, to: OrderStatus): string {
  return `
    with
      changed as (${update_order}),
      counted as (
        update order_totals
        set ${from} = ${from} - 1, ${to} = ${to} + 1
        where bucket = $1 and exists (select from changed)
      )
    select id, user_id, currency, items, total, status, metadata, version, created_at, updated_at
    from changed
  `;
}

export function createCitusOrderStore(context: StoreContext): OrderStore {
  const { db, large_pages } = context;
  const move_statements = new Map(
    order_statuses.flatMap((from) =>
      order_statuses
        .filter((to) => to !== from)
        .map((to) => [`${from} ${to}`, moveStatement(from, to)] as const),
    ),
  );

  return createOrderStore(context, {
    prepareList(filters, status) {
      const list = { table: "orders", json } as const;
      if (filters.length === 0) {
        const totals = status ?? order_statuses.join(" + ");
        return prepareCitusList(db, large_pages, {
          ...list,
          where: status === undefined ? "" : `status = '${status}'`,
          total: `select coalesce(sum(${totals}), 0)::float8 as total from order_totals`,
          valuesOf: null,
          max_offset: MAX_OFFSET,
        });
      }
      const where = filters.map((name, at) => `${name} = $${2 + at}`).join(" and ");
      const of_user = `bucket = $1 and ${where}`;
      return prepareCitusList(db, large_pages, {
        ...list,
        where: of_user,
        total: `select count(*)::float8 as total from orders where ${of_user}`,
        valuesOf: (query) => [
          bucketOf(query.user_id ?? 0),
          ...filters.map((name) => query[name] ?? null),
        ],
        max_offset: null,
      });
    },

    get: createOrderLookup(db),

    place: prepareCitusCreate(context, {
      table: "orders",
      ...order_creates,
      async findRejected(session, all_fields) {
        const ids = all_fields.map(({ user_id }) => user_id);
        const rows = await session.all<{ id: number }>(existing_users, ids);
        const existing = new Set(rows.map(({ id }) => id));
        return ids.map((id) => !existing.has(id));
      },
      newRecord: (number, fields, time): StoredOrder =>
        newOrder(number * BUCKETS + bucketOf(fields.user_id), fields, time),
      toRecord,
      async insertOne(session, { id, user_id, currency, items, total, metadata, created_at }) {
        const bucket = bucketOf(user_id);
        const values = [bucket, id, user_id, currency, items, total, metadata, created_at];
        await session.all(insert_order, ...values);
      },
      async insertMany(session, orders) {
        const rows = orders.map((order) => ({ ...order, bucket: bucketOf(order.user_id) }));
        await session.all(insert_orders, JSON.stringify(rows));
        const counts = new Map<number, number>();
        for (const { bucket } of rows) counts.set(bucket, (counts.get(bucket) ?? 0) + 1);
        const added = [...counts].map(([bucket, count]) => ({ bucket, orders: count }));
        await session.all(count_orders, JSON.stringify(added), [...counts.keys()]);
      },
      async explainViolation(error, { user_id }) {
        if (!isForeignKeyViolation(error)) throw error;
        const findUser = (session: Session) => session.first(existing_users, [user_id]);
        if ((await db.run("read", findUser, { admitted: 1 })) === null) return { kind: "rejected" };
        // The commit of a new user is recovered on a server that was killed during it, which takes a while.
        return fail("unavailable", "the user is not on all servers yet");
      },
    }),

    find: findOrder,

    update(session, { id, user_id, version, status: from }, { status, metadata, updated_at }) {
      const statement = move_statements.get(`${from} ${status}`) ?? update_order;
      const values = [bucketOf(user_id), id, version, status, metadata, updated_at];
      return session.first(statement, ...values);
    },
  });
}
