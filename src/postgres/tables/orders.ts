import { columnNames } from "../../domain/columns.ts";
import {
  failUnknownUser,
  Order,
  type OrderEdit,
  type OrderQuery,
  type OrderRow,
  type OrderStore,
  orderRow,
  parseStoredOrder,
  type StoredOrder,
} from "../../domain/order.ts";
import { firstVersion } from "../../domain/record.ts";
import type { StoreContext } from "../engine/context.ts";
import type { Session } from "../server/connection.ts";
import type { Placement } from "../server/placement.ts";
import { ownColumnTypes, recordJson, rowRenderer } from "./columns.ts";
import { prepareCreate } from "./creates.ts";
import type { List } from "./list-statements.ts";
import { prepareList, type ReadPage } from "./lists.ts";
import { createLookup } from "./lookups.ts";
import { prepareUpdates } from "./updates.ts";

const columns = columnNames(Order);

/** @returns the orders with these ids that exist, in any order */
export async function findOrders(
  session: Session,
  placement: Placement,
  ids: readonly number[],
): Promise<readonly StoredOrder[]> {
  return ids.length === 0 ? [] : placement.findOrders(session, columns, ids);
}

export const orderText = rowRenderer<Order>(Order);

export function createOrderStore(context: StoreContext): OrderStore {
  const { db, placement } = context;
  const findOrder = createLookup<number, StoredOrder>(db, {
    find: (session, ids) => findOrders(session, placement, ids),
    keyOf: ({ id }) => id,
  });

  const lists = new Map<string, ReadPage>();
  function listFor({ user_id, status }: OrderQuery): ReadPage {
    const list: List = { table: "orders", ofUser: user_id !== undefined, status: status ?? null };
    const name = `${list.ofUser} ${status}`;
    const read = lists.get(name) ?? prepareList(context, list);
    lists.set(name, read);
    return read;
  }

  const create = prepareCreate<OrderRow, Order>(context, {
    table: "orders",
    columns: ownColumnTypes(Order),
    rejected: "(select users.id from users where users.id = input.user_id) is null",
    created: "order.created",
    json: recordJson(Order),
    order: "user_id",
    conflictKeysOf: () => [],
    lockOf: ({ user_id }) => `users ${user_id}`,
    throwRejected: failUnknownUser,
    newRecord: (id, fields, time) => orderText(firstVersion(id, fields, time)),
  });

  const { update } = prepareUpdates<
    StoredOrder,
    Pick<StoredOrder, keyof OrderEdit>,
    Order,
    OrderEdit
  >(context, {
    table: "orders",
    read: (session, ids) => findOrders(session, placement, ids),
    parse: parseStoredOrder,
    columns: { status: "text", metadata: "text" },
    valuesOf: ({ status, metadata }) => ({ status, metadata: JSON.stringify(metadata) }),
    toRecord: orderText,
    updated: "order.updated",
    removal: null,
  });

  return {
    list: (query: OrderQuery, client) => listFor(query)(query, client),

    async get(id, client) {
      const order = await findOrder(id, client);
      return order && orderText(order);
    },

    create: (fields, key, author = null) => create(orderRow(fields), key, author),
    update,
  };
}
