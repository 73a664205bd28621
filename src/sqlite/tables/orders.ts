import type { Database } from "bun:sqlite";
import { fail } from "../../base/error.ts";
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
import { prepareCountedList } from "./count-index.ts";
import {
  createRecordStore,
  type ListRows,
  prepareIdOf,
  prepareUpdate,
  readFew,
  type StoreContext,
  selectionOf,
  type Update,
} from "./records.ts";

/** Reads all orders, or those of the user. */
function readScanned(db: Database, columns: string, query: OrderQuery): ListRows {
  const { user_id, status, created_from, created_to, after = 0, offset, sort = "id" } = query;
  const { where, parameters } = selectionOf({ status, created_from, created_to });
  const ofUser = user_id === undefined ? "" : "user_id = +$user_id and";
  const filters = { ...parameters, ...(user_id !== undefined && { user_id }) };
  const count = db.query<{ total: number }, typeof parameters>(`
    select count(*) as total
    from orders
    where ${ofUser} ${where}
  `);
  const page = db.query<JsonRow, typeof parameters>(`
    select ${columns}
    from orders
    where ${ofUser} ${where} and id > $after and id <= $last
    order by id ${sort === "id" ? "asc" : "desc"}
    limit +$limit offset +$offset
  `);
  const range =
    sort === "id" ? { after, last: Number.MAX_SAFE_INTEGER } : { after: 0, last: maxId(query) };
  const rows = page.iterate({ ...filters, ...range, offset, limit: rowsToRead(query) });
  return { total: count.get(filters)?.total ?? 0, rows };
}

/** @param statuses of the orders of the list; `null` for all orders of the user */
function prepareRowsOfUser(db: Database, columns: string, statuses: readonly OrderStatus[] | null) {
  // The unary plus: the index of the user has the status as well.
  const inStatus = statuses === null ? "" : ` and +status in ('${statuses.join("', '")}')`;
  const where = `user_id = +$user_id${inStatus}`;
  type OfUser = Readonly<Record<"user_id", number>>;
  const count = db.prepare<{ total: number }, OfUser>(`
    select count(*) as total
    from orders
    where ${where}
  `);
  // The rows before the page are skipped in the index.
  const inOrder = (direction: "asc" | "desc") =>
    db.prepare<JsonRow, OfUser & Record<"after" | "last" | "limit" | "offset", number>>(`
      select ${columns}
      from orders
      where ${where} and id > $after and id <= $last
      order by id ${direction}
      limit +$limit offset +$offset
    `);
  const rows = { id: inOrder("asc"), "-id": inOrder("desc") };

  return (query: OrderQuery): ListRows => {
    const { user_id = 0, after = 0, offset, sort = "id" } = query;
    const range =
      sort === "id" ? { after, last: Number.MAX_SAFE_INTEGER } : { after: 0, last: maxId(query) };
    const page = { user_id, ...range, offset, limit: rowsToRead(query) };
    return { total: count.get({ user_id })?.total ?? 0, rows: rows[sort].iterate(page) };
  };
}

function prepareRows(db: Database, columns: string) {
  const readAll = prepareCountedList(db, "orders", columns, null);
  // Prepared when they are used: few of the 31 sets of statuses are.
  const lists = new Map<string, (query: OrderQuery) => ListRows>();

  function listFor({ user_id, status }: OrderQuery): typeof readAll {
    const isAny = status === undefined || status.length === orderStatuses.length;
    const statuses = isAny ? null : orderStatuses.filter((one) => status.includes(one));
    return lists.getOrInsertComputed(`${user_id === undefined} ${statuses}`, () =>
      user_id === undefined
        ? prepareCountedList(db, "orders", columns, statuses)
        : prepareRowsOfUser(db, columns, statuses),
    );
  }

  return (query: OrderQuery): ListRows => {
    const { id, reference, user_id, status, created_from, created_to } = query;
    const filters = { id, reference, user_id, status, created_from, created_to };
    if (id !== undefined || reference !== undefined)
      return readFew(db, "orders", columns, filters, query);
    if (created_from !== undefined || created_to !== undefined)
      return readScanned(db, columns, query);
    return (user_id === undefined && status === undefined ? readAll : listFor(query))(query);
  };
}

function prepareRequireValid(db: Database) {
  const idOf = prepareIdOf(db, "orders");
  const userWithId = db.prepare<{ id: number }, [id: number]>("select id from users where id = ?");
  return ({ user_id, reference }: OrderRow | Order, id: number | null) => {
    if (userWithId.get(user_id) === null) failUnknownUser();
    if (reference !== null && (idOf(["reference", reference]) ?? id) !== id)
      fail("reference_taken");
  };
}

export function prepareOrderUpdate({ db, noteChange }: StoreContext): Update<Order> {
  const requireValid = prepareRequireValid(db);
  // Separate statements, because setting a column makes SQLite rewrite its indexes and run its triggers, even if the value
  // stays the same.
  const setters = (["user_id", "reference", "status"] as const).map((name) => {
    return { name, statement: prepareUpdate(db, "orders", name) };
  });
  const update = prepareUpdate(db, "orders", "refunded", "metadata", "version", "updated_at");

  return (before, after, fields, author) => {
    const { id, user_id, reference, refunded, version, updated_at } = after;
    if (user_id !== before.user_id || reference !== before.reference) requireValid(after, id);
    for (const { name, statement } of setters)
      if (after[name] !== before[name]) statement.run(after[name], id);
    update.run(refunded, JSON.stringify(after.metadata), version, updated_at, id);
    noteChange("order.updated", after, author, fields);
  };
}

export function createOrderStore(context: StoreContext): OrderStore {
  const { db } = context;
  const insert = db.prepare<null, (string | number | null)[]>(`
    insert into orders (
      user_id, currency, reference, items, total, status, metadata, version,
      created_at, updated_at
    )
    values (?1, ?2, ?3, ?4, ?5, 'pending', ?6, 1, ?7, ?7)
  `);
  return createRecordStore<Order, OrderQuery, OrderFields, OrderRow, OrderEdit>(context, {
    table: "orders",
    schema: Order,
    created: "order.created",
    prepareRows,
    rowOf: orderRow,
    requireValid: prepareRequireValid(db),
    insert: ({ user_id, currency, reference, items, total, metadata }, now) =>
      insert.run(user_id, currency, reference, items, total, metadata, now),
    update: prepareOrderUpdate(context),
  }).store;
}
