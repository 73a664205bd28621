import { failField } from "../error.ts";
import {
  newOrder,
  type Order,
  type OrderFields,
  type OrderQuery,
  type OrderStatus,
  type OrderStore,
  orderJson,
  parseStoredOrder,
  type StoredOrder,
} from "../order.ts";
import { requirePreconditions } from "../precondition.ts";
import { type RecordText, recordText } from "../record.ts";
import type { Session } from "./connection.ts";
import type { StoreContext } from "./context.ts";
import type { CreateRules } from "./create-queue.ts";
import { prepareCreate } from "./creates.ts";
import { type ListFilter, prepareList, type ReadPage } from "./lists.ts";
import { prepareLookup } from "./lookups.ts";
import { version_conflict } from "./retry.ts";

export const columns = `
  id::float8 as id, user_id::float8 as user_id, currency, items, total::float8 as total, status,
  metadata, version::float8 as version, created_at, updated_at
`;

export function toRecord(row: StoredOrder): RecordText<Order> {
  return recordText(row, orderJson);
}

/** @returns the values of the columns of a new order, apart from the id, the version and the times */
export function toRow({ items, metadata, ...fields }: OrderFields) {
  return {
    ...fields,
    items: JSON.stringify(items),
    status: "pending",
    metadata: JSON.stringify(metadata),
  };
}

/** How orders are placed. */
export const order_creates: CreateRules<ReturnType<typeof toRow>> = {
  conflictKeysOf: () => [],
  lockOf: ({ user_id }) => String(user_id),
  throwRejected: () => failField("user_id", "must be an existing user"),
};

/** An order as JSON, from the columns of its table. `format` takes less time than `||`, also to parse and to plan. */
export const json = `
  format(
    '{"id":%s,"user_id":%s,"currency":"%s","items":%s,"total":%s,"status":"%s","metadata":%s,"version":%s,' ||
      '"created_at":"%s","updated_at":"%s"}',
    id, user_id, currency, items, total, status, metadata, version, created_at, updated_at
  )
`;

const select_by_id = `
  select ${columns}
  from orders
  where id = $1
`;
const update_order = `
  update orders
  set status = $3, metadata = $4, version = version + 1,
    updated_at = greatest(updated_at collate "C", $5)
  where id = $1 and version = $2
  returning ${columns}
`;

export function createOrderStore(context: StoreContext): OrderStore {
  const { db, large_pages, now } = context;
  const prepare = (filters: readonly ListFilter[], status?: OrderStatus) =>
    prepareList(db, large_pages, { table: "orders", json, filters, ...(status && { status }) });
  const listAll = prepare([]);
  const listInStatus: Record<OrderStatus, ReadPage> = {
    pending: prepare([], "pending"),
    paid: prepare([], "paid"),
    shipped: prepare([], "shipped"),
    delivered: prepare([], "delivered"),
    canceled: prepare([], "canceled"),
  };
  const listOfUser = prepare(["user_id"]);
  const listOfUserInStatus = prepare(["user_id", "status"]);

  const place = prepareCreate(context, {
    table: "orders",
    columns: {
      user_id: "bigint",
      currency: "text",
      items: "text",
      total: "bigint",
      status: "text",
      metadata: "text",
    },
    rejected: "(select users.id from users where users.id = input.user_id) is null",
    // The lock of the foreign key.
    lock: "(select users.id from users where users.id = input.user_id for key share skip locked)",
    json,
    order: "user_id",
    ...order_creates,
    toRecord: (id, fields, time) => toRecord(newOrder(id, fields, time)),
  });

  return {
    list(query: OrderQuery) {
      const { user_id, status } = query;
      if (user_id === undefined) {
        return status === undefined ? listAll(query) : listInStatus[status](query);
      }
      return status === undefined ? listOfUser(query) : listOfUserInStatus(query);
    },

    get: prepareLookup(db, { table: "orders", key: "id", columns }, toRecord),

    place: (fields, key) => place(toRow(fields), key),

    update(id, edit, preconditions) {
      const change = async (session: Session) => {
        const current = await session.first<StoredOrder>(select_by_id, id);
        if (current === null) return null;
        requirePreconditions(current, preconditions);
        const changed = edit(parseStoredOrder(current));
        if (changed === null) return toRecord(current);
        const row = await session.first<StoredOrder>(
          update_order,
          id,
          current.version,
          changed.status,
          JSON.stringify(changed.metadata),
          now().toISOString(),
        );
        if (row === null) throw version_conflict;
        return toRecord(row);
      };
      return db.run("write", change, { record: `orders ${id}` });
    },
  };
}
