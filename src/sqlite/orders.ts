import type { Database } from "bun:sqlite";
import { latestOf } from "../clock.ts";
import { systemCode } from "../error.ts";
import {
  failUnknownUser,
  newOrder,
  type Order,
  type OrderQuery,
  type OrderRow,
  type OrderStatus,
  type OrderStore,
  orderJson,
  orderRow,
  parseStoredOrder,
  type StoredOrder,
} from "../order.ts";
import { type JsonRow, rowsToRead } from "../page.ts";
import { requirePreconditions } from "../precondition.ts";
import { type RecordText, recordText } from "../record.ts";
import type { StoreContext } from "./context.ts";
import { createCountIndex, type PageStart } from "./count-index.ts";
import type { ReadRows } from "./lists.ts";

type NewOrder = OrderRow & { readonly now: string };

export const columns =
  "id, user_id, currency, items, total, status, metadata, version, created_at, updated_at";

/** An order as JSON. One text per row costs less than a value per column. */
const json = `
  format(
    '{"id":%d,"user_id":%d,"currency":"%s","items":%s,"total":%d,"status":"%s","metadata":%s,"version":%d,' ||
    '"created_at":"%s","updated_at":"%s"}',
    id, user_id, currency, items, total, status, metadata, version, created_at, updated_at
  )
`;

/** Reads the orders of one user. They are numbered, so a page at any offset begins at a position. */
function prepareRowsOfUser(db: Database) {
  // The last position is the number of orders.
  const total = db.prepare<{ total: number }, { user_id: number }>(`
    select coalesce(max(user_position), 0) as total
    from orders
    where user_id = +$user_id
  `);
  const page = db.prepare<JsonRow, Record<"user_id" | "position" | "limit", number>>(`
    select id, ${json} as json
    from orders
    where user_id = +$user_id and user_position > $position
    order by user_position
    limit +$limit
  `);
  // With both filters, the orders of the user are counted in the index alone. One user has few of them.
  const totalInStatus = db.prepare<{ total: number }, { user_id: number; status: OrderStatus }>(`
    select count(*) as total
    from orders
    where user_id = $user_id and status = $status
  `);
  const pageInStatus = db.prepare<
    JsonRow,
    Record<"user_id" | "position" | "limit" | "offset", number> & { status: OrderStatus }
  >(`
    select id, ${json} as json
    from orders
    where user_id = +$user_id and user_position > $position and status = +$status
    order by user_position
    limit +$limit offset +$offset
  `);
  const idAt = db.prepare<{ id: number }, { user_id: number; position: number }>(`
    select id
    from orders
    where user_id = $user_id and user_position = $position
  `);

  const countOrders = (userId: number) => total.get({ user_id: userId })?.total ?? 0;

  /** Counts the orders up to this id by binary search: ids ascend with the positions. */
  function positionOf(userId: number, id: number): number {
    let low = 0;
    let high = countOrders(userId);
    while (low < high) {
      const position = Math.ceil((low + high) / 2);
      if ((idAt.get({ user_id: userId, position })?.id ?? 0) <= id) low = position;
      else high = position - 1;
    }
    return low;
  }

  return (userId: number, query: OrderQuery) => {
    const { offset, after, status } = query;
    const limit = rowsToRead(query);
    const position = after === undefined ? 0 : positionOf(userId, after);
    if (status === undefined) {
      const rows = page.iterate({ user_id: userId, position: position + offset, limit });
      return { total: countOrders(userId), rows };
    }
    return {
      total: totalInStatus.get({ user_id: userId, status })?.total ?? 0,
      rows: pageInStatus.iterate({ user_id: userId, status, position, limit, offset }),
    };
  };
}

/** Reads the lists of orders. Each combination of filters finds a page at any offset in its own way. */
function prepareRows(db: Database): ReadRows<OrderQuery> {
  const readOfUser = prepareRowsOfUser(db);
  const countIndex = createCountIndex(db);
  const page = db.prepare<JsonRow, PageStart & { limit: number }>(`
    select id, ${json} as json
    from orders
    where id > $after
    order by id
    limit +$limit offset +$skip
  `);
  const pageInStatus = db.prepare<JsonRow, PageStart & { status: OrderStatus; limit: number }>(`
    select id, ${json} as json
    from orders
    where status = +$status and id > $after
    order by id
    limit +$limit offset +$skip
  `);

  return (query) => {
    const { offset, after, user_id, status } = query;
    if (user_id !== undefined) return readOfUser(user_id, query);
    const list = status ?? "orders";
    const total = countIndex.total(list);
    if (after === undefined && offset >= total) return { total, rows: [] };
    const start = after === undefined ? countIndex.pageStart(list, offset) : { after, skip: 0 };
    const limit = rowsToRead(query);
    const rows =
      status === undefined
        ? page.iterate({ ...start, limit })
        : pageInStatus.iterate({ ...start, status, limit });
    return { total, rows };
  };
}

export function createOrderStore({
  db,
  lists,
  idempotency,
  clock,
  ...context
}: StoreContext): OrderStore {
  const reader = context.reader.forTable("orders");
  const writer = context.writer.forTable("orders");
  const list = lists.prepare("orders", prepareRows);
  const withId = db.prepare<StoredOrder, { id: number }>(`
    select ${columns}
    from orders
    where id = $id
  `);
  const textWithId = db.prepare<RecordText<Order>, { id: number }>(`
    select id, version, ${json} as json
    from orders
    where id = $id
  `);
  // No statement has `returning`, for which SQLite would open a temporary table: records are built from what was
  // just written.
  const insert = db.prepare<null, NewOrder>(`
    insert into orders (
      user_id, user_position, currency, items, total, status, metadata, version, created_at,
      updated_at
    )
    values (
      $user_id,
      (select coalesce(max(user_position), 0) + 1 from orders where user_id = +$user_id),
      $currency, $items, $total, 'pending', $metadata, 1, $now, $now
    )
  `);
  const updateOrder = db.prepare<null, StoredOrder>(`
    update orders
    set status = $status,
      metadata = $metadata,
      version = $version,
      updated_at = $updated_at
    where id = $id
  `);

  const find = (id: number) => withId.get({ id });
  const findText = (id: number) => textWithId.get({ id });

  /** @returns the id of the new order */
  function insertOrder(order: NewOrder): number {
    try {
      return Number(insert.run(order).lastInsertRowid);
    } catch (error) {
      // The only foreign key of an order is its user.
      if (systemCode(error) === "SQLITE_CONSTRAINT_FOREIGNKEY") failUnknownUser();
      throw error;
    }
  }

  return {
    list,

    get: (id) => reader.read(findText, id),

    place(fields, key) {
      return writer.write(() =>
        idempotency.once(key, () => {
          const time = clock();
          const row = orderRow(fields);
          const id = insertOrder({ ...row, now: time });
          return recordText(newOrder(id, row, time), orderJson);
        }),
      );
    },

    update(id, edit, preconditions) {
      return writer.write(() => {
        const order = find(id);
        if (order === null) return null;
        requirePreconditions(order, preconditions);
        const change = edit(parseStoredOrder(order));
        if (change === null) return recordText(order, orderJson);
        const changed = {
          ...order,
          ...change,
          metadata: JSON.stringify(change.metadata),
          version: order.version + 1,
          updated_at: latestOf(order.updated_at, clock()),
        };
        updateOrder.run(changed);
        return recordText(changed, orderJson);
      });
    },
  };
}
