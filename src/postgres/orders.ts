import { failField } from "../error.ts";
import {
  newOrder,
  type Order,
  type OrderFields,
  type OrderQuery,
  type OrderStatus,
  type OrderStore,
  orderJson,
  type StoredOrder,
} from "../order.ts";
import { requirePreconditions } from "../precondition.ts";
import type { PlainConnection, Session } from "./connection.ts";
import type { List, ListFilter, ReadList } from "./lists.ts";
import { version_conflict } from "./retry.ts";

export const columns = `
  id::float8 as id, user_id::float8 as user_id, currency, items, total::float8 as total, status,
  metadata, version::float8 as version, created_at, updated_at
`;

/** Copies each member, because a row of a list also has the total of the list. */
export function fromRow(row: StoredOrder): Order {
  return {
    id: row.id,
    user_id: row.user_id,
    currency: row.currency,
    items: JSON.parse(row.items),
    total: row.total,
    status: row.status,
    metadata: JSON.parse(row.metadata),
    version: row.version,
    created_at: row.created_at,
    updated_at: row.updated_at,
  };
}

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

async function find(session: Session, id: number): Promise<Order | null> {
  const row = await session.first<StoredOrder>(select_by_id, id);
  return row && fromRow(row);
}

export function createOrderStore({ db, reader, writer, lists, now }: PlainConnection): OrderStore {
  const list: List<StoredOrder> = {
    table: "orders",
    columns,
    json,
    filters: [],
    toJson: orderJson,
  };
  const prepareList = (filters: readonly ListFilter[]) => lists.prepare({ ...list, filters });
  const prepareStatus = (status: OrderStatus) => lists.prepare({ ...list, status });
  const listAll = lists.prepare(list);
  const listInStatus: Record<OrderStatus, ReadList> = {
    pending: prepareStatus("pending"),
    paid: prepareStatus("paid"),
    shipped: prepareStatus("shipped"),
    delivered: prepareStatus("delivered"),
    canceled: prepareStatus("canceled"),
  };
  const listOfUser = prepareList(["user_id"]);
  const listOfUserInStatus = prepareList(["user_id", "status"]);

  return {
    list(query: OrderQuery) {
      const { user_id, status } = query;
      if (user_id === undefined) {
        return status === undefined ? listAll(query) : listInStatus[status](query);
      }
      return status === undefined ? listOfUser(query) : listOfUserInStatus(query);
    },

    get: reader.prepare({ table: "orders", key: "id", columns }, fromRow),

    place: writer.prepare({
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
      toInput: (fields: OrderFields) => ({ ...fields, status: "pending" }),
      conflictKeysOf: () => [],
      lockOf: ({ user_id }) => String(user_id),
      throwRejected: () => failField("user_id", "must be an existing user"),
      toRecord: newOrder,
    }),

    update(id, edit, preconditions) {
      return db.change(`orders ${id}`, async (session) => {
        const current = await find(session, id);
        if (current === null) return null;
        requirePreconditions(current, preconditions);
        const changed = edit(current);
        if (changed === null) return current;
        const row = await session.first<StoredOrder>(
          update_order,
          id,
          current.version,
          changed.status,
          JSON.stringify(changed.metadata),
          now().toISOString(),
        );
        if (row === null) throw version_conflict;
        return fromRow(row);
      });
    },
  };
}
