import { type BulkStore, checkIdGap, created, rejected, unchanged } from "../import.ts";
import { newOrder, type Order, type OrderImport, type StoredOrder } from "../order.ts";
import type { Database, Session } from "./connection.ts";
import {
  type CopyBuffer,
  createBulkStore,
  digest,
  type IdTracker,
  type Importer,
} from "./import.ts";
import { columns, fromRow } from "./orders.ts";

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

/** Hashes for comparing orders. */
interface OrderDigest {
  readonly id: number;
  readonly full: bigint;
  /** Of the fields that never change: the status may have changed since the first import. */
  readonly content: bigint;
}

function digestOrder(order: Order): OrderDigest {
  const { id, user_id, currency, items } = order;
  return { id, full: digest(order), content: digest({ user_id, currency, items }) };
}

function createImporter(now: () => Date): Importer<OrderImport> {
  const accepted = { ids: new Map<number, OrderDigest>(), keys: new Map<string, OrderDigest>() };
  let stored = { ids: new Map<number, OrderDigest>(), keys: new Map<string, OrderDigest>() };
  let users = new Set<number>();
  const order_buffer: CopyBuffer = {
    into: `orders (
      id, user_id, currency, items, total, status, metadata, version, created_at, updated_at
    )`,
    rows: [],
  };
  const key_buffer: CopyBuffer = { into: "imported_orders (import_key, order_id)", rows: [] };

  function toOrder(record: OrderImport, ids: IdTracker): Order {
    if ("id" in record) return record;
    return newOrder(ids.last() + 1, record, now().toISOString());
  }

  /** @returns unchanged or rejected if the order was already imported or exists; `null` if it is new */
  function compareWithExisting(record: OrderImport, order: Order) {
    if ("id" in record) {
      const existing = accepted.ids.get(order.id) ?? stored.ids.get(order.id);
      if (existing === undefined) return null;
      return existing.full === digestOrder(order).full
        ? unchanged
        : rejected(`order ${order.id} already exists with different values`);
    }
    const existing = accepted.keys.get(record.import_key) ?? stored.keys.get(record.import_key);
    if (existing === undefined) return null;
    if (existing.content === digestOrder(order).content) return unchanged;
    return rejected(
      `this line was imported before with different content, as order ${existing.id}`,
    );
  }

  return {
    buffers: [order_buffer, key_buffer],

    async prepare(session: Session, records) {
      const user_ids = [...new Set(records.map(({ user_id }) => user_id))];
      const found = await session.all<{ id: number }>(existing_users, user_ids);
      users = new Set(found.map(({ id }) => id));
      const keys = records.flatMap((record) => ("id" in record ? [] : [record.import_key]));
      const existing_keys = await session.all<{ import_key: string; order_id: number }>(
        with_keys,
        keys,
      );
      const ids = records.flatMap((record) => ("id" in record ? [record.id] : []));
      const of_keys = existing_keys.map(({ order_id }) => order_id);
      const rows = await session.all<StoredOrder>(with_ids, [...ids, ...of_keys]);
      stored = {
        ids: new Map(rows.map((row) => [row.id, digestOrder(fromRow(row))])),
        keys: new Map(),
      };
      for (const { import_key, order_id } of existing_keys) {
        const order_digest = stored.ids.get(order_id);
        if (order_digest !== undefined) stored.keys.set(import_key, order_digest);
      }
    },

    importOne(record, ids) {
      const order = toOrder(record, ids);
      const { id, user_id, items, metadata } = order;
      const outcome = compareWithExisting(record, order);
      if (outcome !== null) return outcome;
      if (!users.has(user_id)) return rejected("user_id must be an existing user");
      const gap = checkIdGap(id, ids.last());
      if (gap !== null) return gap;
      const order_digest = digestOrder(order);
      accepted.ids.set(id, order_digest);
      order_buffer.rows.push([
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
        accepted.keys.set(record.import_key, order_digest);
        key_buffer.rows.push([record.import_key, id]);
      }
      ids.add(id);
      return created;
    },
  };
}

export function createOrderBulkStore(db: Database, now: () => Date): BulkStore<Order, OrderImport> {
  return createBulkStore(db, {
    table: "orders",
    page,
    fromRow,
    createImporter: () => createImporter(now),
  });
}
