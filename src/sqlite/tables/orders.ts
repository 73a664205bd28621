import type { Database } from "bun:sqlite";
import {
  failUnknownUser,
  Order,
  type OrderEdit,
  type OrderFields,
  type OrderQuery,
  type OrderRow,
  type OrderStatus,
  type OrderStore,
  orderRow,
  orderStatuses,
} from "../../domain/order.ts";
import { type JsonRow, maxId, rowsToRead } from "../../domain/page.ts";
import type { Author } from "../../domain/record.ts";
import { failReferenceTaken } from "../../domain/reference.ts";
import type { StoreContext } from "./context.ts";
import { prepareCountedList } from "./counted-list.ts";
import type { ListRows } from "./lists.ts";
import { createRecordStore, type OpenUpdates, readFew } from "./records.ts";
import {
  NEXT_USER_POSITION,
  prepareUserNumbering,
  prepareUserPositions,
} from "./user-positions.ts";

function prepareRowsOfUser(db: Database, columns: string) {
  const numberingOf = prepareUserNumbering(db);
  // With both filters, the orders of the user are counted in the index alone.
  const totalInStatus = db.prepare<{ total: number }, { user_id: number; status: OrderStatus }>(`
    select count(*) as total
    from orders
    where user_id = +$user_id and status = +$status
  `);
  type Positions = Record<"user_id" | "start" | "end" | "limit" | "skip", number>;
  const inOrder = (direction: "asc" | "desc") =>
    db.prepare<JsonRow, Positions & { status: OrderStatus | null }>(`
      select ${columns}
      from orders
      where user_id = +$user_id and user_position > $start and user_position <= $end
        and (+$status is null or status = +$status)
      order by user_position ${direction}
      limit +$limit offset +$skip
    `);
  const rows = { id: inOrder("asc"), "-id": inOrder("desc") };

  return (userId: number, query: OrderQuery): ListRows => {
    const { after, offset, status = null, sort = "id" } = query;
    // Without a status, no row is read and skipped.
    const skip = status === null ? 0 : offset;
    const skipped = offset - skip;
    const { total, countUpTo, positionAt } = numberingOf(userId);
    const isDescending = sort === "-id";
    let before = isDescending ? total : 0;
    if (after !== undefined) before = countUpTo(isDescending ? maxId(query) : after);
    const positions = isDescending
      ? { start: 0, end: positionAt(before - skipped) }
      : { start: positionAt(before + skipped), end: positionAt(total) };
    const page = { user_id: userId, status, ...positions, limit: rowsToRead(query), skip };
    const matching =
      status === null ? total : (totalInStatus.get({ user_id: userId, status })?.total ?? 0);
    return { total: matching, rows: rows[sort].iterate(page) };
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

export function prepareOrderUpdate({ db, noteChange }: StoreContext): OpenUpdates<Order> {
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

    return { update, finish: positions.renumber };
  };
}

export function createOrderStore(context: StoreContext): OrderStore {
  const { db } = context;
  // Parameters by position, which take half of the time.
  const insert = db.prepare<null, (string | number | null)[]>(`
    insert into orders (
      user_id, user_position, currency, reference, items, total, status, metadata, version,
      created_at, updated_at
    )
    values (?1, ${NEXT_USER_POSITION}, ?2, ?3, ?4, ?5, 'pending', ?6, 1, ?7, ?7)
  `);
  return createRecordStore<Order, OrderQuery, OrderEdit, OrderFields, OrderRow>(context, {
    table: "orders",
    schema: Order,
    created: "order.created",
    prepareRows,
    rowOf: orderRow,
    requireValid: prepareRequireValid(db),
    insert: ({ user_id, currency, reference, items, total, metadata }, now) =>
      insert.run(user_id, currency, reference, items, total, metadata, now),
    openUpdates: prepareOrderUpdate(context),
  }).store;
}
