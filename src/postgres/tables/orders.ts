import {
  failUnknownUser,
  Order,
  type OrderEdit,
  type OrderQuery,
  type OrderRow,
  type OrderStore,
  orderRow,
} from "../../domain/order.ts";
import type { RecordText } from "../../domain/record.ts";
import type { StoreContext } from "../engine/context.ts";
import type { Session } from "../server/connection.ts";
import type { Placement } from "../server/placement.ts";
import { ownColumnTypes, recordJson, recordText } from "./columns.ts";
import { prepareCreate } from "./creates.ts";
import type { List } from "./list-statements.ts";
import { prepareList, type ReadPage } from "./lists.ts";
import { createLookup } from "./lookups.ts";
import { prepareUpdates } from "./updates.ts";

const columns = recordText(Order);

/** @returns the orders with these ids that exist, in any order */
export async function findOrders(
  session: Session,
  placement: Placement,
  ids: readonly number[],
): Promise<readonly RecordText<Order>[]> {
  return ids.length === 0 ? [] : placement.findOrders(session, columns, ids);
}

export function createOrderStore(context: StoreContext): OrderStore {
  const { db, placement } = context;
  const get = createLookup<number, RecordText<Order>>(db, {
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
  });

  const { update } = prepareUpdates<Order, OrderEdit>(context, {
    table: "orders",
    read: (session, ids) => findOrders(session, placement, ids),
    columns: { status: "text", metadata: "text" },
    valuesOf: ({ status, metadata }) => ({ status, metadata: JSON.stringify(metadata) }),
    updated: "order.updated",
    removal: null,
  });

  return {
    list: (query: OrderQuery, client) => listFor(query)(query, client),
    get,

    create: (fields, key, author = null) => create(orderRow(fields), key, author),
    update,
  };
}
