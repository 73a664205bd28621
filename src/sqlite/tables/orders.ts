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
import { NEXT_CHANGE } from "./changes.ts";
import { prepareList } from "./lists.ts";
import * as records from "./records.ts";
import { blockEnd, prepareStoreRuns, prepareTimeRanges } from "./time-runs.ts";

function prepareRows(db: Database, columns: string) {
  const rangesOf = prepareTimeRanges(db);
  const lists = new Map<string, ReturnType<typeof prepareList>>();

  function listFor(ofUser: boolean, given: readonly OrderStatus[]) {
    const statuses = orderStatuses.filter((status) => given.includes(status));
    const create = () => prepareList(db, columns, { table: "orders", ofUser, statuses });
    return lists.getOrInsertComputed(`${ofUser} ${statuses}`, create);
  }

  return (query: OrderQuery): records.ListRows => {
    const { id, reference, user_id, status, created_from, created_to } = query;
    if (id !== undefined || reference !== undefined) {
      const filters = { id, reference, user_id, status, created_from, created_to };
      return records.readFew(db, "orders", columns, filters, query);
    }
    const user = user_id === undefined ? {} : { user_id };
    const read = listFor(user_id !== undefined, status ?? []);
    if ((created_from ?? created_to) === undefined) return read(query, undefined, user);
    // As text, before and after every time.
    const [from, to] = [created_from ?? "", created_to ?? "~"];
    // The orders of a user are few: it takes less time to compare them than to search runs.
    return read(query, rangesOf(from, to, user_id === undefined), { ...user, from, to });
  };
}

function prepareRequireValid(db: Database) {
  const idOf = records.prepareIdOf(db, "orders");
  const userWithId = db.prepare<{ id: number }, [id: number]>("select id from users where id = ?");
  return ({ user_id, reference }: OrderRow | Order, id: number | null) => {
    if (userWithId.get(user_id) === null) failUnknownUser();
    if (reference !== null && (idOf(["reference", reference]) ?? id) !== id)
      fail("reference_taken");
  };
}

export function prepareOrderUpdate(context: records.StoreContext): records.Update<Order> {
  const { db, noteChange } = context;
  const requireValid = prepareRequireValid(db);
  // Separate statements, because setting a column makes SQLite rewrite its indexes and run its triggers, even if the value
  // stays the same.
  const setters = (["user_id", "reference", "status"] as const).map((name) => {
    return { name, statement: records.prepareUpdate(db, "orders", name) };
  });
  const columns = ["refunded", "metadata", "version", "last_change", "updated_at"];
  const update = records.prepareUpdate(db, "orders", ...columns);

  return (before, after, fields, author) => {
    const { id, user_id, reference, refunded, version, updated_at } = after;
    if (user_id !== before.user_id || reference !== before.reference) requireValid(after, id);
    for (const { name, statement } of setters)
      if (after[name] !== before[name]) statement.run(after[name], id);
    const change = noteChange("order.updated", after, author, fields);
    update.run(refunded, JSON.stringify(after.metadata), version, change, updated_at, id);
  };
}

export function createOrderStore(context: records.StoreContext): OrderStore {
  const { db } = context;
  const insert = db.prepare<null, (string | number | null)[]>(`
    insert into orders (user_id, currency, reference, items, total, status, metadata, version, last_change, created_at, updated_at)
    values (?1, ?2, ?3, ?4, ?5, 'pending', ?6, 1, ${NEXT_CHANGE}, ?7, ?7)
  `);
  const storeRuns = prepareStoreRuns(db);
  return records.createRecordStore<Order, OrderQuery, OrderFields, OrderRow, OrderEdit>(context, {
    table: "orders",
    schema: Order,
    created: "order.created",
    prepareRows,
    rowOf: orderRow,
    requireValid: prepareRequireValid(db),
    insert({ user_id, currency, reference, items, total, metadata }, now) {
      const changes = insert.run(user_id, currency, reference, items, total, metadata, now);
      const id = Number(changes.lastInsertRowid);
      if (id === blockEnd(id)) storeRuns(id);
      return changes;
    },
    update: prepareOrderUpdate(context),
  }).store;
}
