import type { Database } from "bun:sqlite";
import { systemCode } from "../../base/error.ts";
import { latestOf } from "../../base/timestamp.ts";
import { changeOf } from "../../domain/change.ts";
import {
  failUnknownUser,
  newOrder,
  Order,
  type OrderQuery,
  type OrderRow,
  type OrderStore,
  orderJson,
  orderRow,
  parseStoredOrder,
  type StoredOrder,
} from "../../domain/order.ts";
import { maxId, rowsToRead } from "../../domain/page.ts";
import { changesNothing, recordText } from "../../domain/record.ts";
import type { StoreContext } from "./context.ts";
import { prepareCountedList } from "./counted-list.ts";
import type { ListRows, ReadRows } from "./lists.ts";
import { prepareRecords } from "./records.ts";

type StatusFilters = Required<Pick<OrderQuery, "user_id" | "status">>;

type NewOrder = OrderRow & { readonly now: string };

/** Positions of a user's orders: after `start`, up to `end`. */
type Positions = Readonly<Record<"start" | "end", number>>;

/** Reads the orders of one user. They are numbered, so a page at any offset begins at a position. */
function prepareRowsOfUser<Row>(db: Database, columns: string) {
  // The last position is the number of orders.
  const total = db.prepare<{ total: number }, { user_id: number }>(`
    select coalesce(max(user_position), 0) as total
    from orders
    where user_id = +$user_id
  `);
  // With both filters, the orders of the user are counted in the index alone.
  const totalInStatus = db.prepare<{ total: number }, StatusFilters>(`
    select count(*) as total
    from orders
    where user_id = +$user_id and status = +$status
  `);
  type Page = Positions & Record<"user_id" | "limit" | "skip", number>;
  function prepare<Filters>(where: string) {
    const inOrder = (direction: "asc" | "desc") =>
      db.prepare<Row, Filters & Page>(`
        select ${columns}
        from orders
        where user_id = +$user_id and user_position > $start and user_position <= $end ${where}
        order by user_position ${direction}
        limit +$limit offset +$skip
      `);
    return { id: inOrder("asc"), "-id": inOrder("desc") };
  }
  const rows = prepare<unknown>("");
  const rowsInStatus = prepare<StatusFilters>("and status = +$status");
  const idAt = db.prepare<{ id: number }, { user_id: number; position: number }>(`
    select id
    from orders
    where user_id = $user_id and user_position = $position
  `);

  const countOrders = (userId: number) => total.get({ user_id: userId })?.total ?? 0;

  /** Counts the orders up to this id by binary search: ids ascend with the positions. */
  function positionOf(userId: number, id: number, last: number): number {
    let low = 0;
    let high = last;
    while (low < high) {
      const position = Math.ceil((low + high) / 2);
      if ((idAt.get({ user_id: userId, position })?.id ?? 0) <= id) low = position;
      else high = position - 1;
    }
    return low;
  }

  /** @returns the positions of the orders after the id `after` */
  function positionsAfter(userId: number, last: number, query: OrderQuery): Positions {
    const { after, sort } = query;
    if (after === undefined) return { start: 0, end: last };
    return sort === "-id"
      ? { start: 0, end: positionOf(userId, maxId(query), last) }
      : { start: positionOf(userId, after, last), end: last };
  }

  return (userId: number, query: OrderQuery): ListRows<Row> => {
    const { offset, status, sort = "id" } = query;
    const limit = rowsToRead(query);
    const last = countOrders(userId);
    const { start, end } = positionsAfter(userId, last, query);
    if (status === undefined) {
      // Positions are consecutive, so no row is read and skipped.
      const rest = sort === "-id" ? { start, end: end - offset } : { start: start + offset, end };
      const page = { user_id: userId, ...rest, limit, skip: 0 };
      return { meta: { total: last }, rows: rows[sort].iterate(page) };
    }
    const filters = { user_id: userId, status };
    return {
      meta: { total: totalInStatus.get(filters)?.total ?? 0 },
      rows: rowsInStatus[sort].iterate({ ...filters, start, end, limit, skip: offset }),
    };
  };
}

/** Reads the lists of orders. Each combination of filters finds a page at any offset in its own way. */
function prepareRows<Row>(db: Database, columns: string): ReadRows<OrderQuery, Row> {
  const readOfUser = prepareRowsOfUser<Row>(db, columns);
  const readAll = prepareCountedList<Row>(db, { table: "orders", columns, where: "" });
  const readInStatus = prepareCountedList<Row>(db, {
    table: "orders",
    columns,
    where: "status = +$status and",
  });

  return (query) => {
    const { user_id, status } = query;
    if (user_id !== undefined) return readOfUser(user_id, query);
    return status === undefined
      ? readAll("orders", query)
      : readInStatus(status, query, { status });
  };
}

export function createOrderStore(context: StoreContext): OrderStore {
  const { db, timestamp, recordChange } = context;
  const { list, get, createOnce, modify } = prepareRecords<Order, OrderQuery, StoredOrder>(
    context,
    Order,
    { table: "orders", prepareRows },
  );
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
  // A separate statement, because setting a column makes SQLite rewrite its indexes and run its triggers, even if the
  // value stays the same.
  const updateStatus = db.prepare<null, Pick<StoredOrder, "id" | "status">>(`
    update orders
    set status = $status
    where id = $id
  `);
  const updateOrder = db.prepare<null, StoredOrder>(`
    update orders
    set metadata = $metadata,
      version = $version,
      updated_at = $updated_at
    where id = $id
  `);

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
    get,

    place(fields, key, author = null) {
      return createOnce(key, author, () => {
        const time = timestamp();
        const row = orderRow(fields);
        const order = newOrder(insertOrder({ ...row, now: time }), row, time);
        recordChange(changeOf("order.created", order, author));
        return recordText(order, orderJson);
      });
    },

    update(id, edit, preconditions, author = null) {
      return modify(id, preconditions, author, (order) => {
        const before = parseStoredOrder(order);
        const fields = edit(before);
        if (changesNothing(before, fields)) return recordText(order, orderJson);
        const changed = {
          ...order,
          ...fields,
          metadata: JSON.stringify(fields.metadata),
          version: order.version + 1,
          updated_at: latestOf(order.updated_at, timestamp()),
        };
        if (fields.status !== order.status) updateStatus.run({ id, status: fields.status });
        updateOrder.run(changed);
        recordChange(changeOf("order.updated", changed, author));
        return recordText(changed, orderJson);
      });
    },
  };
}
