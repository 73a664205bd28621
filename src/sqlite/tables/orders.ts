import type { Database } from "bun:sqlite";
import { systemCode } from "../../base/error.ts";
import {
  failUnknownUser,
  Order,
  type OrderEdit,
  type OrderFields,
  type OrderQuery,
  type OrderRow,
  type OrderStore,
  orderRow,
  orderStatuses,
} from "../../domain/order.ts";
import { type JsonRow, maxId, rowsToRead } from "../../domain/page.ts";
import { type Author, changesNothing, nextVersion, type RecordText } from "../../domain/record.ts";
import { failReferenceTaken } from "../../domain/reference.ts";
import type { StoreContext } from "./context.ts";
import { prepareCountedList } from "./counted-list.ts";
import type { ListRows } from "./lists.ts";
import { checked, prepareRecords, readFew } from "./records.ts";
import {
  NEXT_USER_POSITION,
  prepareUserNumbering,
  prepareUserPositions,
} from "./user-positions.ts";

type StatusFilters = Required<Pick<OrderQuery, "user_id" | "status">>;

/** Reads the orders of one user, which are numbered. */
function prepareRowsOfUser(db: Database, columns: string) {
  const numberingOf = prepareUserNumbering(db);
  // With both filters, the orders of the user are counted in the index alone.
  const totalInStatus = db.prepare<{ total: number }, StatusFilters>(`
    select count(*) as total
    from orders
    where user_id = +$user_id and status = +$status
  `);
  type Page = Record<"user_id" | "start" | "end" | "limit" | "skip", number>;
  function prepare<Filters>(where: string) {
    const inOrder = (direction: "asc" | "desc") =>
      db.prepare<JsonRow, Filters & Page>(`
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

  return (userId: number, query: OrderQuery): ListRows => {
    const { after, offset, status, sort = "id" } = query;
    // Without a status, no row is read and skipped.
    const skip = status === undefined ? 0 : offset;
    const skipped = offset - skip;
    const { total, countUpTo, positionAt } = numberingOf(userId);
    const isDescending = sort === "-id";
    let before = isDescending ? total : 0;
    if (after !== undefined) before = countUpTo(isDescending ? maxId(query) : after);
    const positions = isDescending
      ? { start: 0, end: positionAt(before - skipped) }
      : { start: positionAt(before + skipped), end: positionAt(total) };
    const page = { user_id: userId, ...positions, limit: rowsToRead(query), skip };
    if (status === undefined) return { meta: { total }, rows: rows[sort].iterate(page) };
    const filters = { user_id: userId, status };
    return {
      meta: { total: totalInStatus.get(filters)?.total ?? 0 },
      rows: rowsInStatus[sort].iterate({ ...page, status }),
    };
  };
}

/** Reads the lists of orders. Each combination of filters finds a page at any offset in its own way. */
function prepareRows(db: Database, columns: string) {
  const readOfUser = prepareRowsOfUser(db, columns);
  const readAll = prepareCountedList(db, "orders", columns);
  const readInStatus = new Map(
    orderStatuses.map((status) => [status, prepareCountedList(db, status, columns)]),
  );

  return (query: OrderQuery): ListRows => {
    const { id, reference, user_id, status } = query;
    if (id !== undefined || reference !== undefined)
      return readFew(db, "orders", columns, { id, reference, user_id, status }, query);
    if (user_id !== undefined) return readOfUser(user_id, query);
    const read = status === undefined ? undefined : readInStatus.get(status);
    return (read ?? readAll)(query);
  };
}

type Unique = Pick<OrderEdit, "user_id" | "reference">;

/** @returns a function that throws {AppError} if the user does not exist, or another order has the reference */
function prepareRequireValid(db: Database): (edit: Unique, id: number | null) => void {
  const owners = db.prepare<{ user: number | null; order: number | null }, Unique>(`
    select
      (select id from users where id = $user_id) as "user",
      (select id from orders where reference = $reference) as "order"
  `);

  return ({ user_id, reference }, id) => {
    const { user = null, order = null } = owners.get({ user_id, reference }) ?? {};
    if (user === null) failUnknownUser();
    if (order !== null && order !== id) failReferenceTaken();
  };
}

/** @returns a function that starts updating orders within a transaction */
export function prepareOrderUpdate({ db, noteChange }: StoreContext) {
  const requireValid = prepareRequireValid(db);
  // Separate statements, because setting a column makes SQLite rewrite its indexes and run its triggers, even if the value
  // stays the same.
  const updateStatus = db.prepare<null, Pick<Order, "id" | "status">>(`
    update orders
    set status = $status
    where id = $id
  `);
  const updateReference = db.prepare<null, Pick<Order, "id" | "reference">>(`
    update orders
    set reference = $reference
    where id = $id
  `);
  const moveOrder = db.prepare<null, { id: number; user_id: number; user_position: number }>(`
    update orders
    set user_id = $user_id,
      user_position = $user_position
    where id = $id
  `);
  const openPositions = prepareUserPositions(db);
  const updateOrder = db.prepare<
    null,
    Pick<Order, "id" | "refunded" | "version" | "updated_at"> & { metadata: string }
  >(`
    update orders
    set refunded = $refunded,
      metadata = $metadata,
      version = $version,
      updated_at = $updated_at
    where id = $id
  `);

  return () => {
    const positions = openPositions();

    function moveToUser({ id, user_id: from }: Order, userId: number): void {
      positions.remove(from, id);
      moveOrder.run({ id, user_id: userId, user_position: positions.add(userId, id) });
    }

    /** Writes what has changed of an order, and the change. It throws as `prepareRequireValid`. */
    function update(before: Order, after: Order, author: Author): void {
      const { id, user_id, reference, refunded, status, version, updated_at } = after;
      const isMoved = user_id !== before.user_id;
      if (isMoved || reference !== before.reference) requireValid(after, id);
      if (isMoved) moveToUser(before, user_id);
      if (reference !== before.reference) updateReference.run({ id, reference });
      if (status !== before.status) updateStatus.run({ id, status });
      const metadata = JSON.stringify(after.metadata);
      updateOrder.run({ id, refunded, metadata, version, updated_at });
      noteChange("order.updated", after, author);
    }

    /** Call `finish` after the last order. */
    return { update, finish: positions.renumber };
  };
}

export function createOrderStore(context: StoreContext): OrderStore {
  const { db, timestamp, writer, idempotency, noteChange } = context;
  const table = "orders";
  const parts = { table, schema: Order, prepareRows } as const;
  const { list, get, textOf } = prepareRecords<Order, OrderQuery>(context, parts);
  const requireValid = prepareRequireValid(db);
  const openUpdates = prepareOrderUpdate(context);
  // Parameters by position, which take half of the time.
  const insert = db.prepare<null, (string | number | null)[]>(`
    insert into orders (
      user_id, user_position, currency, reference, items, total, refunded, status, metadata, version,
      created_at, updated_at
    )
    values (?1, ${NEXT_USER_POSITION}, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 1, ?9, ?9)
  `);
  /** @returns the id of the new order */
  function insertRow(row: OrderRow, now: string): number {
    try {
      const { user_id, currency, reference, items, total, refunded, status, metadata } = row;
      const order = [user_id, currency, reference, items, total, refunded, status, metadata];
      return Number(insert.run(...order, now).lastInsertRowid);
    } catch (error) {
      if (/^SQLITE_CONSTRAINT_(FOREIGNKEY|UNIQUE)$/.test(systemCode(error)))
        requireValid(row, null);
      throw error;
    }
  }

  function insertOrder(fields: OrderFields, author: Author): RecordText<Order> {
    const row = orderRow(fields);
    const id = insertRow(row, timestamp());
    noteChange("order.created", { id, version: 1, status: row.status }, author);
    return textOf(id);
  }

  return {
    list,
    get,

    create(fields, key, author = null) {
      const create = () => insertOrder(fields, author);
      return writer.write(table, () => idempotency.once(key, table, create), author);
    },

    update(id, edit, preconditions, key = null, author = null) {
      const update = () => {
        const text = checked(textOf(id), preconditions);
        if (text === null) return null;
        const order = JSON.parse(text.json) as Order;
        const fields = edit(order);
        if (changesNothing(order, fields)) return text;
        const { update: updateStored, finish } = openUpdates();
        updateStored(order, nextVersion<Order>(order, fields, timestamp()), author);
        finish();
        return textOf(id);
      };
      return writer.write(table, () => idempotency.once(key, table, update), author);
    },
  };
}
