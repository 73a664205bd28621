import type { PostgresLayout } from "../database-url.ts";
import { failField } from "../error.ts";
import type { LargePages } from "../large-page.ts";
import {
  newOrder,
  type Order,
  type OrderFields,
  type OrderQuery,
  type OrderStatus,
  type OrderStore,
  orderJson,
  type StoredOrder,
} from "../order.ts";
import { requirePreconditions } from "../precondition.ts";
import type { Database, Session } from "./connection.ts";
import { isForeignKeyViolation } from "./errors.ts";
import type { IdempotencyStore } from "./idempotency.ts";
import {
  type ListSource,
  type ListStatements,
  listStatements,
  readPage,
  total_queries,
} from "./lists.ts";
import { retryOnConflict, version_conflict } from "./retry.ts";

export const columns = `
  id::float8 as id, user_id::float8 as user_id, currency, items, total::float8 as total, status,
  metadata, version::float8 as version, created_at, updated_at
`;

/** Copies each member, because a row of a list also has the total of the list. */
export function fromRow(row: StoredOrder): Order {
  return {
    id: row.id,
    user_id: row.user_id,
    currency: row.currency,
    items: JSON.parse(row.items),
    total: row.total,
    status: row.status,
    metadata: JSON.parse(row.metadata),
    version: row.version,
    created_at: row.created_at,
    updated_at: row.updated_at,
  };
}

const select_by_id = `
  select ${columns}
  from orders
  where id = $1
`;
const insert_order = `
  insert into orders (
    user_id, currency, items, total, status, metadata, version, created_at, updated_at
  )
  values ($1, $2, $3, $4, 'pending', $5, 1, $6, $6)
  returning id::float8 as id
`;
// `user_id` tells Citus which node stores the order.
const update_order = `
  update orders
  set status = $4, metadata = $5, version = version + 1,
    updated_at = greatest(updated_at collate "C", $6)
  where user_id = $1 and id = $2 and version = $3
  returning ${columns}
`;

const count_of_user = "select count(*) from orders where user_id = $4";
const count_of_user_in_status = "select count(*) from orders where user_id = $4 and status = $5";

/** Statements for each combination of filters. */
function statementsOfLists(layout: PostgresLayout) {
  const { orders, orders_in_status } = total_queries[layout];
  const list = (where: string, total: string) =>
    listStatements({ columns, table: "orders", where, total });
  // A parameter would hide from PostgreSQL how many orders have the status. It would search for those in a rare one
  // among all orders.
  const inStatus = (status: OrderStatus) =>
    list(`status = '${status}'`, orders_in_status.replace("$4", `'${status}'`));
  return {
    all: list("", orders),
    in_status: {
      pending: inStatus("pending"),
      paid: inStatus("paid"),
      shipped: inStatus("shipped"),
      delivered: inStatus("delivered"),
      canceled: inStatus("canceled"),
    } satisfies Record<OrderStatus, ListStatements>,
    of_user: list("user_id = $4", count_of_user),
    of_user_in_status: list("user_id = $4 and status = $5", count_of_user_in_status),
  };
}

async function find(session: Session, id: number): Promise<Order | null> {
  const row = await session.first<StoredOrder>(select_by_id, id);
  return row && fromRow(row);
}

export function createOrderStore(
  db: Database,
  idempotency: IdempotencyStore,
  layout: PostgresLayout,
  large_pages: LargePages,
  now: () => Date,
): OrderStore {
  const lists = statementsOfLists(layout);

  function listFor({ user_id, status }: OrderQuery): ListSource<StoredOrder> {
    const toJson = orderJson;
    if (user_id === undefined) {
      return status === undefined
        ? { statements: lists.all, filters: [], toJson }
        : { statements: lists.in_status[status], filters: [], toJson };
    }
    return status === undefined
      ? { statements: lists.of_user, filters: [user_id], toJson }
      : { statements: lists.of_user_in_status, filters: [user_id, status], toJson };
  }

  async function insertOrder(session: Session, fields: OrderFields): Promise<Order> {
    const time = now().toISOString();
    try {
      const row = await session.first<{ id: number }>(
        insert_order,
        fields.user_id,
        fields.currency,
        JSON.stringify(fields.items),
        fields.total,
        JSON.stringify(fields.metadata),
        time,
      );
      if (row === null) throw new Error("an inserted order was not returned");
      return newOrder(row.id, fields, time);
    } catch (error) {
      if (isForeignKeyViolation(error)) failField("user_id", "must be an existing user");
      throw error;
    }
  }

  return {
    list: (query) => readPage(db, large_pages, listFor(query), query),

    get: (id) => db.read((session) => find(session, id)),

    place: (fields, key) => idempotency.once(key, (session) => insertOrder(session, fields)),

    update(id, edit, accepted) {
      return db.write((session) =>
        retryOnConflict(async () => {
          const current = await find(session, id);
          if (current === null) return null;
          requirePreconditions(current, accepted);
          const changed = edit(current);
          if (changed === null) return current;
          const row = await session.first<StoredOrder>(
            update_order,
            current.user_id,
            id,
            current.version,
            changed.status,
            JSON.stringify(changed.metadata),
            now().toISOString(),
          );
          return row === null ? version_conflict : fromRow(row);
        }),
      );
    },
  };
}
