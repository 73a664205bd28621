import { latestOf } from "../clock.ts";
import {
  failUnknownUser,
  newOrder,
  Order,
  type OrderEdit,
  type OrderQuery,
  type OrderRow,
  type OrderStatus,
  type OrderStore,
  orderJson,
  orderRow,
  parseStoredOrder,
  type StoredOrder,
} from "../order.ts";
import { requirePreconditions } from "../precondition.ts";
import { changesNothing, type RecordText, recordText } from "../record.ts";
import { ownColumnTypes, recordJson, selectedColumns } from "./columns.ts";
import type { StoreContext } from "./context.ts";
import type { Create, CreateRules } from "./create-queue.ts";
import { prepareCreate } from "./creates.ts";
import type { ListFilter } from "./list-statements.ts";
import { prepareList, type ReadPage } from "./lists.ts";
import { type Lookup, prepareRecordLookup } from "./lookups.ts";
import { statusCode, statusCodeOf } from "./outbox.ts";
import { recordName } from "./row-locks.ts";
import { createUpdateQueue, type UpdateParts } from "./update-queue.ts";
import { prepareRead, prepareUpdate } from "./updates.ts";

export const columns = selectedColumns(Order);

export function toRecord(row: StoredOrder): RecordText<Order> {
  return recordText(row, orderJson);
}

/** How orders are placed. */
export const orderCreates: CreateRules<OrderRow> = {
  conflictKeysOf: () => [],
  lockOf: ({ user_id }) => recordName("users", user_id),
  throwRejected: failUnknownUser,
};

export const json = recordJson(Order);

/** What an update writes. */
type OrderValues = Pick<StoredOrder, keyof OrderEdit | "updated_at">;

/** What depends on the layout. */
export interface OrderLayout {
  /** @param status of all orders of the list, if no filter is for it */
  readonly prepareList: (filters: readonly ListFilter[], status?: OrderStatus) => ReadPage;
  readonly get: Lookup<number, RecordText<Order>>;
  readonly place: Create<OrderRow, Order>;
  readonly updates: UpdateParts<StoredOrder, OrderValues>;
}

export function createOrderStore(
  context: StoreContext,
  { prepareList, get, place, updates }: OrderLayout,
): OrderStore {
  const runUpdate = createUpdateQueue<StoredOrder, OrderValues, Order>(context, updates);
  const listAll = prepareList([]);
  const listInStatus: Record<OrderStatus, ReadPage> = {
    pending: prepareList([], "pending"),
    paid: prepareList([], "paid"),
    shipped: prepareList([], "shipped"),
    delivered: prepareList([], "delivered"),
    canceled: prepareList([], "canceled"),
  };
  const listOfUser = prepareList(["user_id"]);
  const listOfUserInStatus = prepareList(["user_id", "status"]);

  return {
    list(query: OrderQuery, client) {
      const { user_id, status } = query;
      if (user_id === undefined) {
        return status === undefined ? listAll(query, client) : listInStatus[status](query, client);
      }
      return status === undefined ? listOfUser(query, client) : listOfUserInStatus(query, client);
    },

    get,

    place: (fields, key, author = null) => place(orderRow(fields), key, author),

    update(id, edit, preconditions, author = null) {
      return runUpdate(id, author, (order, time) => {
        requirePreconditions(order, preconditions);
        const before = parseStoredOrder(order);
        const fields = edit(before);
        if (changesNothing(before, fields)) return { kind: "done", record: toRecord(order) };
        const { status, metadata } = fields;
        const values = {
          status,
          metadata: JSON.stringify(metadata),
          updated_at: latestOf(time.toISOString(), order.updated_at),
        };
        const record = toRecord({ ...order, ...values, version: order.version + 1 });
        return { kind: "update", values, record, mayWait: false };
      });
    },
  };
}

export function createPlainOrderStore(context: StoreContext): OrderStore {
  return createOrderStore(context, {
    prepareList: (filters, status) =>
      prepareList(context, { table: "orders", json, filters, ...(status && { status }) }),
    get: prepareRecordLookup(context.db, { table: "orders", key: "id", schema: Order }, toRecord),
    place: prepareCreate(context, {
      table: "orders",
      columns: ownColumnTypes(Order),
      rejected: "(select users.id from users where users.id = input.user_id) is null",
      created: "order.created",
      status: statusCode,
      json,
      order: "user_id",
      ...orderCreates,
      newRecord: (id, fields, time) => toRecord(newOrder(id, fields, time)),
    }),
    updates: {
      table: "orders",
      read: prepareRead("orders", columns),
      update: prepareUpdate({
        table: "orders",
        values: { status: "text", metadata: "text", updated_at: "text" },
        type: "order.updated",
        status: statusCodeOf("orders.status"),
      }),
    },
  });
}
