import type { OrderEdit, OrderQuery, OrderRow, OrderStore } from "../../domain/order.ts";
import { failUnknownUser, Order, orderRow } from "../../domain/order.ts";
import type { RecordText } from "../../domain/record.ts";
import type { StoreContext } from "../engine/context.ts";
import type { Session } from "../server/connection.ts";
import type { Placement } from "../server/placement.ts";
import { ownColumnTypes, recordText } from "./columns.ts";
import { prepareCreate } from "./creates.ts";
import { prepareFew, prepareList, type ReadPage } from "./lists.ts";
import { createLookup } from "./lookups.ts";
import type { EditableTable } from "./record-writes.ts";
import { type Rejection, taken } from "./rejections.ts";
import { prepareUpdates } from "./updates.ts";

const columns = recordText(Order);

export const editableOrders: EditableTable<OrderEdit> = {
  table: "orders",
  columns: {
    user_id: "bigint",
    reference: "text",
    refunded: "bigint",
    status: "text",
    metadata: "text",
  },
  valuesOf: (edit) => ({ ...edit, metadata: JSON.stringify(edit.metadata) }),
  updated: "order.updated",
};

const unknownUser: Rejection = {
  when: () => "(select users.id from users where users.id = input.user_id) is null",
  fail: failUnknownUser,
};

export function findOrders(session: Session, placement: Placement, id: readonly number[]) {
  return placement.findOrders(session, columns, { id });
}

export function createOrderStore(context: StoreContext): OrderStore {
  const { db, placement } = context;
  const get = createLookup<number, RecordText<Order>>(db, {
    find: (session, ids) => findOrders(session, placement, ids),
    keyOf: ({ id }) => id,
  });

  const lists = new Map<string, ReadPage>();
  const listFew = prepareFew(context, (session, filters) =>
    placement.findOrders(session, columns, filters),
  );
  function listFor({ user_id, status = [], created_from, created_to }: OrderQuery): ReadPage {
    const isTimed = (created_from ?? created_to) !== undefined;
    const inStatus = isTimed || status.length > 1 ? "some" : (status[0] ?? null);
    const ofUser = user_id !== undefined;
    return lists.getOrInsertComputed(`${ofUser} ${inStatus} ${isTimed}`, () =>
      prepareList(context, { table: "orders", ofUser, status: inStatus, isTimed }),
    );
  }

  const rejections = [
    unknownUser,
    taken(placement.uniqueTables.orders, "reference", "reference_taken"),
  ];

  const create = prepareCreate<OrderRow, Order>(context, {
    table: "orders",
    columns: ownColumnTypes(Order),
    rejections,
    created: "order.created",
    schema: Order,
    order: "user_id",
    conflictKeysOf: ({ reference }) => (reference === null ? [] : [`reference ${reference}`]),
    lockOf: ({ user_id }) => `users ${user_id}`,
  });

  const write = prepareUpdates<Order, OrderEdit>(context, {
    editable: editableOrders,
    read: (session, ids) => findOrders(session, placement, ids),
    mayConflict: (edit, before) =>
      edit.user_id !== before.user_id || edit.reference !== before.reference,
    rejections,
    removal: null,
  });

  return {
    async list(query, client, memory) {
      const { id, reference, user_id, status, created_from, created_to } = query;
      const filters = { id, reference, user_id, status, created_from, created_to };
      return id === undefined && reference === undefined
        ? listFor(query)(query, client, memory)
        : listFew(filters, query, client, memory);
    },

    get,
    create: (fields, key, author = null) => create({ fields: orderRow(fields), key, author }),
    update: (id, edit, preconditions, key = null, author = null) =>
      write({ id, edit, preconditions, key, author }),
  };
}
