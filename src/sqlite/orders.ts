import type { Database } from "bun:sqlite";
import { failField } from "../error.ts";
import type { Order, OrderQuery, OrderStore } from "../order.ts";
import { requireVersion } from "../version.ts";
import type { Writer } from "./commit.ts";
import type { Keys } from "./keys.ts";

type OrderRow = Omit<Order, "items" | "metadata"> & {
  readonly items: string;
  readonly metadata: string;
};
type Filters = Pick<OrderQuery, "user_id" | "status">;

function fromRow(row: OrderRow): Order {
  return { ...row, items: JSON.parse(row.items), metadata: JSON.parse(row.metadata) };
}

const columns =
  "id, user_id, currency, items, total, status, metadata, version, created_at, updated_at";

/** The count and the page under one combination of filters. */
function prepareList(db: Database, where: string) {
  return {
    count: db.prepare<{ total: number }, Filters>(`
      select count(*) as total
      from orders
      ${where}
    `),
    page: db.prepare<OrderRow, Filters & { limit: number; offset: number }>(`
      select ${columns}
      from orders
      ${where}
      order by id
      limit $limit offset $offset
    `),
  };
}

export function createOrderStore(
  db: Database,
  writer: Writer,
  keys: Keys,
  now: () => Date,
): OrderStore {
  const all = prepareList(db, "");
  const ofUser = prepareList(db, "where user_id = $user_id");
  const inStatus = prepareList(db, "where status = $status");
  const ofUserInStatus = prepareList(db, "where user_id = $user_id and status = $status");

  const withId = db.prepare<OrderRow, { id: number }>(`
    select ${columns}
    from orders
    where id = $id
  `);
  const user = db.prepare<{ id: number }, { user_id: number }>(`
    select id
    from users
    where id = $user_id
  `);
  const insert = db.prepare<
    OrderRow,
    Pick<OrderRow, "user_id" | "currency" | "items" | "total" | "metadata"> & { now: string }
  >(`
    insert into orders
      (user_id, currency, items, total, status, metadata, version, created_at, updated_at)
    values ($user_id, $currency, $items, $total, 'pending', $metadata, 1, $now, $now)
    returning ${columns}
  `);
  const change = db.prepare<
    OrderRow,
    Pick<OrderRow, "id" | "status" | "metadata"> & { now: string }
  >(`
    update orders
    set status = $status,
      metadata = $metadata,
      version = version + 1,
      updated_at = $now
    where id = $id
    returning ${columns}
  `);

  function statementsFor({ user_id, status }: Filters) {
    if (user_id === undefined) return status === undefined ? all : inStatus;
    return status === undefined ? ofUser : ofUserInStatus;
  }

  const readPage = db.transaction(({ limit, offset, ...filters }: OrderQuery) => {
    const { count, page } = statementsFor(filters);
    return {
      rows: page.all({ ...filters, limit, offset }).map(fromRow),
      total: count.get(filters)?.total ?? 0,
    };
  });

  function find(id: number): Order | null {
    const row = withId.get({ id });
    return row === null ? null : fromRow(row);
  }

  return {
    async list(query) {
      return readPage(query);
    },

    async get(id) {
      return find(id);
    },

    place(fields, key) {
      return writer.write(() =>
        keys.once(key, () => {
          if (user.get({ user_id: fields.user_id }) === null) {
            failField("user_id", "must be an existing user");
          }
          const row = insert.get({
            ...fields,
            items: JSON.stringify(fields.items),
            metadata: JSON.stringify(fields.metadata),
            now: now().toISOString(),
          });
          if (row === null) throw new Error("an inserted order was not returned");
          return fromRow(row);
        }),
      );
    },

    update(id, edit, accepted) {
      return writer.write(() => {
        const order = find(id);
        if (order === null) return null;
        requireVersion(order, accepted);
        const changed = edit(order);
        if (changed === null) return order;
        const row = change.get({
          id,
          status: changed.status,
          metadata: JSON.stringify(changed.metadata),
          now: now().toISOString(),
        });
        return row && fromRow(row);
      });
    },
  };
}
