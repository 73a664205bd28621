import { type Order, type OrderImport, placedOrder, type StoredOrder } from "../order.ts";
import { created, known, refused, refuseLeap, type Transfer } from "../transfer.ts";
import type { Database, Session } from "./connection.ts";
import { columns, fromRow } from "./orders.ts";
import { type Copy, createTransfer, digest, type Ids, type Taker } from "./transfer.ts";

const page = `
  select ${columns}
  from orders
  where id > $1
  order by orders.id
  limit $2
`;
const with_ids = `
  select ${columns}
  from orders
  where id = any($1::bigint[])
`;
const with_keys = `
  select import_key, order_id::float8 as order_id
  from imported_orders
  where import_key = any($1::text[])
`;
const existing_users = `
  select id::float8 as id
  from users
  where id = any($1::bigint[])
`;

/** What tells an order from another. */
interface Seen {
  readonly id: number;
  readonly whole: bigint;
  /** Of what never changes: the same choice may have been paid since. */
  readonly choice: bigint;
}

function see(order: Order): Seen {
  const { id, user_id, currency, items } = order;
  return { id, whole: digest(order), choice: digest({ user_id, currency, items }) };
}

function createTaker(now: () => Date): Taker<OrderImport> {
  const taken = { ids: new Map<number, Seen>(), keys: new Map<string, Seen>() };
  let stored = { ids: new Map<number, Seen>(), keys: new Map<string, Seen>() };
  let users = new Set<number>();
  const orders: Copy = {
    into: `orders (
      id, user_id, currency, items, total, status, metadata, version, created_at, updated_at
    )`,
    rows: [],
  };
  const imported: Copy = { into: "imported_orders (import_key, order_id)", rows: [] };

  function toOrder(record: OrderImport, ids: Ids): Order {
    if ("id" in record) return record;
    return placedOrder(ids.last() + 1, record, now().toISOString());
  }

  /** @returns why the order is not to be made; `null` when it is */
  function judge(record: OrderImport, order: Order) {
    if ("id" in record) {
      const there = taken.ids.get(order.id) ?? stored.ids.get(order.id);
      if (there === undefined) return null;
      return there.whole === see(order).whole
        ? known
        : refused(`order ${order.id} is there already, and not the same`);
    }
    const there = taken.keys.get(record.import_key) ?? stored.keys.get(record.import_key);
    if (there === undefined) return null;
    if (there.choice === see(order).choice) return known;
    return refused(`the import took another record of this line before, as order ${there.id}`);
  }

  return {
    copies: [orders, imported],

    async prepare(session: Session, records) {
      const user_ids = [...new Set(records.map(({ user_id }) => user_id))];
      const found = await session.all<{ id: number }>(existing_users, user_ids);
      users = new Set(found.map(({ id }) => id));
      const keys = records.flatMap((record) => ("id" in record ? [] : [record.import_key]));
      const known_keys = await session.all<{ import_key: string; order_id: number }>(
        with_keys,
        keys,
      );
      const ids = records.flatMap((record) => ("id" in record ? [record.id] : []));
      const of_keys = known_keys.map(({ order_id }) => order_id);
      const rows = await session.all<StoredOrder>(with_ids, [...ids, ...of_keys]);
      stored = { ids: new Map(rows.map((row) => [row.id, see(fromRow(row))])), keys: new Map() };
      for (const { import_key, order_id } of known_keys) {
        const seen = stored.ids.get(order_id);
        if (seen !== undefined) stored.keys.set(import_key, seen);
      }
    },

    take(record, ids) {
      const order = toOrder(record, ids);
      const { id, user_id, items, metadata } = order;
      const judged = judge(record, order);
      if (judged !== null) return judged;
      if (!users.has(user_id)) return refused("user_id must be an existing user");
      const leap = refuseLeap(id, ids.last());
      if (leap !== null) return leap;
      const seen = see(order);
      taken.ids.set(id, seen);
      orders.rows.push([
        id,
        user_id,
        order.currency,
        JSON.stringify(items),
        order.total,
        order.status,
        JSON.stringify(metadata),
        order.version,
        order.created_at,
        order.updated_at,
      ]);
      if (!("id" in record)) {
        taken.keys.set(record.import_key, seen);
        imported.rows.push([record.import_key, id]);
      }
      ids.give(id);
      return created;
    },
  };
}

export function createOrderTransfer(db: Database, now: () => Date): Transfer<Order, OrderImport> {
  return createTransfer(db, {
    table: "orders",
    page,
    fromRow,
    createTaker: () => createTaker(now),
  });
}
