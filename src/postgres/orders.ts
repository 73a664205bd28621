import { latestOf } from "../clock.ts";
import {
  failUnknownUser,
  newOrder,
  type Order,
  type OrderChange,
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
import { type RecordText, recordText, reserveNothing, reserveText } from "../record.ts";
import type { Session } from "./connection.ts";
import type { StoreContext } from "./context.ts";
import type { Create, CreateRules } from "./create-queue.ts";
import { prepareCreate } from "./creates.ts";
import { type ListFilter, prepareList, type ReadPage } from "./lists.ts";
import { type Lookup, prepareLookup } from "./lookups.ts";
import { recordStatement, statusCode } from "./outbox.ts";
import { versionConflict } from "./retry.ts";
import { lockedColumn, lockingStatement, waitFor } from "./row-locks.ts";
import { userRecord, type Write } from "./users.ts";

export const columns = `
  id::float8 as id, user_id::float8 as user_id, currency, items, total::float8 as total, status,
  metadata, version::float8 as version, created_at, updated_at
`;

export function toRecord(row: StoredOrder): RecordText<Order> {
  return recordText(row, orderJson);
}

/** How orders are placed. */
export const orderCreates: CreateRules<OrderRow> = {
  conflictKeysOf: () => [],
  lockOf: ({ user_id }) => userRecord(user_id),
  sizeOf: ({ items, metadata }) => items.length + metadata.length,
  throwRejected: failUnknownUser,
};

/** An order as JSON, from the columns of its table. `format` takes less time than `||`, also to parse and to plan. */
export const json = `
  format(
    '{"id":%s,"user_id":%s,"currency":"%s","items":%s,"total":%s,"status":"%s","metadata":%s,"version":%s,' ||
      '"created_at":"%s","updated_at":"%s"}',
    id, user_id, currency, items, total, status, metadata, version, created_at, updated_at
  )
`;

const selectById = `
  select ${columns}, ${lockedColumn}
  from orders
  where id = $1
`;
const updateOrder = lockingStatement(
  (condition) => `
  with
    updated as (
      update orders
      set status = $3, metadata = $4, version = version + 1, updated_at = $5
      where id = $1 and version = $2 and ${condition}
      returning ${columns}
    ),
    recorded as (${recordStatement({
      type: "order.updated",
      from: "updated",
      version: "version",
      status: statusCode,
      token: "$6",
      time: "$7",
    })})
  select *
  from updated
`,
);

/** The fields of a changed order. */
export type OrderUpdate = Pick<StoredOrder, keyof OrderChange | "updated_at">;

/** What depends on the layout. */
export interface OrderLayout {
  /** @param status of all orders of the list, if no filter is for it */
  readonly prepareList: (filters: readonly ListFilter[], status?: OrderStatus) => ReadPage;
  readonly get: Lookup<number, RecordText<Order>>;
  readonly place: Create<OrderRow, Order>;
  /** `locked` is `lockedColumn`, or missing if it makes no difference. */
  readonly find: (
    session: Session,
    id: number,
  ) => Promise<(StoredOrder & { readonly locked?: boolean }) | null>;
  /** @returns the updated order; `null` if its version has changed */
  readonly update: (
    session: Session,
    order: StoredOrder,
    update: OrderUpdate,
    write: Write,
  ) => Promise<StoredOrder | null>;
}

export function createOrderStore(
  { runUpdate, now }: StoreContext,
  { prepareList, get, place, find, update }: OrderLayout,
): OrderStore {
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

    update(id, edit, preconditions, author = null, reserve = reserveNothing) {
      return runUpdate(`orders ${id}`, async (session, wait) => {
        const found = await find(session, id);
        if (found === null) return null;
        const { locked = false, ...order } = found;
        requirePreconditions(order, preconditions);
        reserveText(order.items + order.metadata, reserve);
        const changed = edit(parseStoredOrder(order));
        const time = now();
        const updated = {
          ...changed,
          metadata: JSON.stringify(changed.metadata),
          updated_at: latestOf(time.toISOString(), order.updated_at),
        };
        const write = { author, time, wait: waitFor(locked, wait) };
        const row = await update(session, order, updated, write);
        if (row === null) throw versionConflict;
        return toRecord(row);
      });
    },
  };
}

export function createPlainOrderStore(context: StoreContext): OrderStore {
  const { db, largePages } = context;
  return createOrderStore(context, {
    prepareList: (filters, status) =>
      prepareList(db, largePages, { table: "orders", json, filters, ...(status && { status }) }),
    get: prepareLookup(db, { table: "orders", key: "id", columns }, toRecord),
    place: prepareCreate(context, {
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
      created: "order.created",
      status: statusCode,
      json,
      order: "user_id",
      ...orderCreates,
      newRecord: (id, fields, time) => toRecord(newOrder(id, fields, time)),
    }),
    find: (session, id) => session.first(selectById, id),
    update(session, { id, version }, { status, metadata, updated_at }, { author, time, wait }) {
      const values = [id, version, status, metadata, updated_at, author, time.getTime()];
      return session.first(updateOrder[wait], ...values);
    },
  });
}
