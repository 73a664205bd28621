import type { Database } from "bun:sqlite";
import { type BulkStore, checkIdGap, created, rejected, unchanged } from "../import.ts";
import { newOrder, type Order, type OrderImport, type StoredOrder } from "../order.ts";
import type { Connection } from "./connection.ts";
import type { IdTracker } from "./count-index.import.ts";
import { createBulkStore, type ImportOne, isSameJson } from "./import.ts";
import { columns, fromRow } from "./orders.ts";
import { prepareUserPositions, type UserPositions } from "./user-positions.ts";

type NewRow = StoredOrder & { readonly import_key: string | null };

/** Statements on a table of orders and its table of import keys: the stored ones, or those of a dry run. */
function prepareOrders(
  db: Database,
  table: "orders" | "tried_orders",
  keys_table: "imported_orders" | "tried_imported_orders",
) {
  const withId = db.prepare<StoredOrder, { id: number }>(`
    select ${columns}
    from ${table}
    where id = $id
  `);
  const withKey = db.prepare<StoredOrder, { import_key: string }>(`
    select ${columns}
    from ${table}
    where id = (select order_id from ${keys_table} where import_key = $import_key)
  `);
  const insert = db.prepare<null, StoredOrder & { user_position: number }>(`
    insert into ${table} (
      id, user_id, user_position, currency, items, total, status, metadata, version, created_at,
      updated_at
    )
    values (
      $id, $user_id, $user_position, $currency, $items, $total, $status, $metadata, $version,
      $created_at, $updated_at
    )
  `);
  const insertKey = db.prepare<null, { import_key: string; id: number }>(`
    insert into ${keys_table} (import_key, order_id)
    values ($import_key, $id)
  `);
  return { withId, withKey, insert, insertKey };
}
type OrderStatements = ReturnType<typeof prepareOrders>;

const create_dry_run_tables = `
  create temp table tried_orders (
    id integer primary key,
    user_id integer not null,
    user_position integer not null,
    currency text not null,
    items text not null,
    total integer not null,
    status text not null,
    metadata text not null,
    version integer not null,
    created_at text not null,
    updated_at text not null
  ) strict;
  create temp table tried_imported_orders (
    import_key text primary key,
    order_id integer not null
  ) strict, without rowid
`;

/** @returns whether the fields that never change are equal. Status and metadata may have changed since the import. */
function hasSameContent(row: StoredOrder, given: StoredOrder): boolean {
  return (
    row.user_id === given.user_id &&
    row.currency === given.currency &&
    isSameJson(row.items, given.items)
  );
}

function isIdentical(row: StoredOrder, given: StoredOrder): boolean {
  return (
    row.version === given.version &&
    row.status === given.status &&
    row.created_at === given.created_at &&
    row.updated_at === given.updated_at &&
    isSameJson(row.metadata, given.metadata) &&
    hasSameContent(row, given)
  );
}

export function createOrderBulkStore(connection: Connection): BulkStore<Order, OrderImport> {
  const { db, clock } = connection;
  const orders = prepareOrders(db, "orders", "imported_orders");
  const openUserPositions = prepareUserPositions(db);
  const user = db.prepare<{ id: number }, { user_id: number }>(`
    select id
    from users
    where id = $user_id
  `);
  const page = db.prepare<StoredOrder, { after: number; limit: number }>(`
    select ${columns}
    from orders
    where id > $after
    order by id
    limit $limit
  `);

  function toNewRow(record: OrderImport, ids: IdTracker): NewRow {
    const items = JSON.stringify(record.items);
    const metadata = JSON.stringify(record.metadata);
    if ("id" in record) return { ...record, items, metadata, import_key: null };
    const order = newOrder(ids.last() + 1, record, clock());
    return { ...order, items, metadata, import_key: record.import_key };
  }

  /**
   * @param into receives new orders. Existing orders are looked up in `orders` as well.
   * @param positionOf returns the position of a new order among those of its user
   */
  function importInto(
    into: OrderStatements,
    positionOf: UserPositions["add"],
  ): ImportOne<OrderImport> {
    const tables = into === orders ? [orders] : [orders, into];
    function find({ id, import_key }: NewRow, ids: IdTracker): StoredOrder | null {
      for (const { withId, withKey } of tables) {
        // No order has an id beyond the last one.
        if (import_key === null && id > ids.last()) return null;
        const row = import_key === null ? withId.get({ id }) : withKey.get({ import_key });
        if (row !== null) return row;
      }
      return null;
    }

    return (record, ids) => {
      const row = toNewRow(record, ids);
      const { id, user_id, import_key } = row;
      const existing = find(row, ids);
      if (existing !== null && import_key === null) {
        return isIdentical(existing, row)
          ? unchanged
          : rejected(`order ${id} already exists with different values`);
      }
      if (existing !== null) {
        if (hasSameContent(existing, row)) return unchanged;
        return rejected(
          `this line was imported before with different content, as order ${existing.id}`,
        );
      }
      if (user.get({ user_id }) === null) return rejected("user_id must be an existing user");
      const gap = checkIdGap(id, ids.last());
      if (gap !== null) return gap;
      into.insert.run({ ...row, user_position: positionOf(user_id, id) });
      if (import_key !== null) into.insertKey.run({ import_key, id });
      ids.add(id, row.status);
      return created;
    };
  }

  return createBulkStore(connection, {
    table: "orders",
    readPage: (after, limit) => page.all({ after, limit }).map(fromRow),
    openBatch() {
      const user_positions = openUserPositions();
      return { importOne: importInto(orders, user_positions.add), finish: user_positions.renumber };
    },
    prepareDryRun() {
      db.run(create_dry_run_tables);
      // A dry run stores no orders, so it needs no positions.
      return importInto(prepareOrders(db, "tried_orders", "tried_imported_orders"), () => 1);
    },
  });
}
