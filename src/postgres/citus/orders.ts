/** Orders are distributed by bucket. Every statement on one order is performed by one shard. */
import { changeCodeOf, changeOf } from "../../change.ts";
import { fail } from "../../error.ts";
import {
  newOrder,
  Order,
  type OrderStatus,
  type OrderStore,
  orderStatuses,
  type StoredOrder,
} from "../../order.ts";
import { columnDefinitions, columnTypes } from "../columns.ts";
import type { Session } from "../connection.ts";
import type { StoreContext } from "../context.ts";
import { isForeignKeyViolation } from "../errors.ts";
import { createOrderStore, json, orderCreates, toRecord } from "../orders.ts";
import { outboxColumns, statusCode } from "../outbox.ts";
import { existingUsers } from "../users.ts";
import { BUCKETS, bucketOf } from "./bucket.ts";
import { valuesFrom } from "./columns.ts";
import { prepareCitusCreate } from "./creates.ts";
import { prepareCitusList } from "./lists.ts";
import { createOrderLookup, findOrder } from "./lookups.ts";
import { recordOrders } from "./outbox.ts";

/** For lists of all users: every shard reads as many ids as the offset. @see docs/citus.md */
const MAX_OFFSET = 10_000;

const orderColumns = columnTypes(Order);
const names = Object.keys(orderColumns).join(", ");

// The order, its change and the total are on one shard, so the transaction of the statement ends without a two-phase commit.
const insertOrder = `
  with inserted as (
    insert into orders (bucket, ${names})
    values ($1, ${valuesFrom("$7", orderColumns)})
  ),
  recorded as (
    insert into order_outbox (bucket, ${outboxColumns})
    values ($1, $3, $2, 1, $4, $5, $6)
  )
  update order_totals
  set pending = pending + 1
  where bucket = $1
`;
const insertOrders = `
  insert into orders (${names}, bucket)
  select ${names}, bucket
  from json_to_recordset($1::text::json) as input (${columnDefinitions(orderColumns)}, bucket integer)
`;
/** `$1` is a JSON array of new orders by bucket, and `$2` are the buckets. */
const countOrders = `
  update order_totals
  set pending = order_totals.pending + added.orders
  from json_to_recordset($1::text::json) as added (bucket integer, orders bigint)
  where order_totals.bucket = added.bucket and order_totals.bucket = any($2::integer[])
`;
/** @param alsoChanges further CTEs */
function updateStatement(alsoChanges = ""): string {
  return `
    with
      changed as (
        update orders
        set status = $4, metadata = $5, version = version + 1, updated_at = $6
        where bucket = $1 and id = $2 and version = $3
        returning id, version, status
      ),
      recorded as (
        insert into order_outbox (bucket, ${outboxColumns})
        select $1, ${changeCodeOf("order.updated")}, id, version, ${statusCode}, $7::text, $8::bigint
        from changed
      )
      ${alsoChanges}
    select id
    from changed
  `;
}

const updateOrder = updateStatement();

/** Also changes the totals of both statuses. */
function moveStatement(from: OrderStatus, to: OrderStatus): string {
  return updateStatement(`
      , counted as (
        update order_totals
        set ${from} = ${from} - 1, ${to} = ${to} + 1
        where bucket = $1 and exists (select from changed)
      )
  `);
}

export function createCitusOrderStore(context: StoreContext): OrderStore {
  const { db } = context;
  const moveStatements = new Map(
    orderStatuses.flatMap((from) =>
      orderStatuses
        .filter((to) => to !== from)
        .map((to) => [`${from} ${to}`, moveStatement(from, to)] as const),
    ),
  );

  return createOrderStore(context, {
    prepareList(filters, status) {
      const list = { table: "orders", json } as const;
      if (filters.length === 0) {
        const totals = status ?? orderStatuses.join(" + ");
        return prepareCitusList(context, {
          ...list,
          where: status === undefined ? "" : `status = '${status}'`,
          total: `select coalesce(sum(${totals}), 0)::bigint as total from order_totals`,
          valuesOf: null,
          maxOffset: MAX_OFFSET,
        });
      }
      const where = filters.map((name, at) => `${name} = $${2 + at}`).join(" and ");
      const ofUser = `bucket = $1 and ${where}`;
      return prepareCitusList(context, {
        ...list,
        where: ofUser,
        total: `select count(*) as total from orders where ${ofUser}`,
        valuesOf: (query) => [
          bucketOf(query.user_id ?? 0),
          ...filters.map((name) => query[name] ?? null),
        ],
        maxOffset: null,
      });
    },

    get: createOrderLookup(db),

    place: prepareCitusCreate(context, {
      table: "orders",
      ...orderCreates,
      async findRejected(session, allFields) {
        const ids = allFields.map(({ user_id }) => user_id);
        const rows = await session.all<{ id: number }>(existingUsers, ids);
        const existing = new Set(rows.map(({ id }) => id));
        return ids.map((id) => !existing.has(id));
      },
      newRecord: (number, fields, time): StoredOrder =>
        newOrder(number * BUCKETS + bucketOf(fields.user_id), fields, time),
      toRecord,
      async insertOne(session, { record, author }, time) {
        const { type, status } = changeOf("order.created", record, author);
        const place = [bucketOf(record.user_id), record.id];
        const change = [type, status, author, time.getTime()];
        await session.all(insertOrder, ...place, ...change, JSON.stringify(record));
      },
      async insertMany(session, created, time) {
        const rows = created.map(({ record }) => ({ ...record, bucket: bucketOf(record.user_id) }));
        await session.all(insertOrders, JSON.stringify(rows));
        const counts = new Map<number, number>();
        for (const { bucket } of rows) counts.set(bucket, (counts.get(bucket) ?? 0) + 1);
        const added = [...counts].map(([bucket, count]) => ({ bucket, orders: count }));
        await session.all(countOrders, JSON.stringify(added), [...counts.keys()]);
        await recordOrders(session, "order.created", created, time);
      },
      async explainViolation(error, { user_id }) {
        if (!isForeignKeyViolation(error)) throw error;
        const findUser = (session: Session) => session.first(existingUsers, [user_id]);
        if ((await db.runAdmitted("read", findUser)) === null) return { kind: "rejected" };
        // The commit of a new user is recovered on a server that was killed during it, which takes a while.
        return fail("unavailable", "the user is not on all servers yet");
      },
    }),

    updates: {
      table: "orders",
      async read(session, ids) {
        const found = new Map<number, StoredOrder>();
        for (const id of ids) {
          const stored = await findOrder(session, id);
          if (stored !== null) found.set(id, stored);
        }
        return found;
      },
      async update(session, targets) {
        const updated: number[] = [];
        for (const { stored, values, author, time } of targets) {
          const { id, user_id, version } = stored;
          const { status, metadata, updated_at } = values;
          const statement = moveStatements.get(`${stored.status} ${status}`) ?? updateOrder;
          const key = [bucketOf(user_id), id, version];
          const changes = [status, metadata, updated_at, author, time.getTime()];
          if ((await session.first(statement, ...key, ...changes)) !== null) updated.push(id);
        }
        return updated;
      },
    },
  });
}
