/** Orders are distributed by bucket. Every statement on one order is performed by one shard. */
import { fail, failField } from "../../error.ts";
import type { LargePages } from "../../large-page.ts";
import {
  newOrder,
  type Order,
  type OrderFields,
  type OrderQuery,
  type OrderStatus,
  type OrderStore,
  order_statuses,
  type StoredOrder,
} from "../../order.ts";
import { requirePreconditions } from "../../precondition.ts";
import type { Connection } from "../connection.ts";
import { isForeignKeyViolation } from "../errors.ts";
import { columns, fromRow, json } from "../orders.ts";
import { version_conflict } from "../retry.ts";
import { BUCKETS, bucketOf } from "./bucket.ts";
import { nextNumber } from "./id-lock.ts";
import type { CitusIdempotencyStore, Creation } from "./idempotency.ts";
import { preparePage } from "./lists.ts";
import { createOrderLookup, findOrder } from "./reader.ts";

/** For lists of all users: every shard reads as many ids as the offset. @see docs/scaling-out.md */
const MAX_OFFSET = 10_000;

const next_number = nextNumber("orders");
// Both rows are on one shard, so the transaction of the statement ends without a two-phase commit.
const insert_order = `
  with inserted as (
    insert into orders (
      bucket, id, user_id, currency, items, total, status, metadata, version, created_at,
      updated_at
    )
    values ($1, $2, $3, $4, $5, $6, 'pending', $7, 1, $8, $8)
  )
  update order_totals
  set pending = pending + 1
  where bucket = $1
`;
const update_order = `
  update orders
  set status = $4, metadata = $5, version = version + 1, updated_at = $6
  where bucket = $1 and id = $2 and version = $3
  returning ${columns}
`;

/** Also changes the totals of both statuses. */
function moveStatement(from: OrderStatus, to: OrderStatus): string {
  return `
    with
      changed as (${update_order}),
      counted as (
        update order_totals
        set ${from} = ${from} - 1, ${to} = ${to} + 1
        where bucket = $1 and exists (select from changed)
      )
    select id, user_id, currency, items, total, status, metadata, version, created_at, updated_at
    from changed
  `;
}

const of_user = "bucket = $1 and user_id = $2";
const of_user_in_status = "bucket = $1 and user_id = $2 and status = $3";

/** Query that counts the orders of a user, in the index of one shard. */
function countQuery(where: string): string {
  return `
    select count(*)::float8 as total
    from orders
    where ${where}
  `;
}

/** Query for the number of orders, from the stored totals of all buckets. */
function totalQuery(statuses: readonly OrderStatus[]): string {
  return `
    select coalesce(sum(${statuses.join(" + ")}), 0)::float8 as total
    from order_totals
  `;
}

export function createCitusOrderStore(
  { db, reader, now }: Connection,
  idempotency: CitusIdempotencyStore,
  large_pages: LargePages,
): OrderStore {
  const move_statements = new Map(
    order_statuses.flatMap((from) =>
      order_statuses
        .filter((to) => to !== from)
        .map((to) => [`${from} ${to}`, moveStatement(from, to)] as const),
    ),
  );
  const prepareList = (where: string, total: string, is_on_one_shard: boolean) =>
    preparePage(db, large_pages, {
      table: "orders",
      json,
      where,
      total,
      is_on_one_shard,
      max_offset: is_on_one_shard ? null : MAX_OFFSET,
    });
  const listAll = prepareList("", totalQuery(order_statuses), false);
  const in_status = order_statuses.map((status) => {
    const list = prepareList(`status = '${status}'`, totalQuery([status]), false);
    return [status, list] as const;
  });
  const lists_in_status = new Map(in_status);
  const listOfUser = prepareList(of_user, countQuery(of_user), true);
  const listOfUserInStatus = prepareList(of_user_in_status, countQuery(of_user_in_status), true);

  const lookUp = createOrderLookup(db);
  const findUser = reader.prepare({ table: "users", key: "id", columns: "id" }, () => true);

  /** @returns whether the coordinator has the user */
  async function hasUser(id: number): Promise<boolean> {
    return (await findUser(id)) !== null;
  }

  function creationOf(fields: OrderFields): Creation<Order> {
    const bucket = bucketOf(fields.user_id);
    return {
      async prepare(session) {
        const row = await session.first<{ number: number }>(next_number);
        if (row === null) throw new Error("a sequence returned no number");
        return newOrder(row.number * BUCKETS + bucket, fields, now().toISOString());
      },
      async insert(session, { id, user_id, currency, items, total, metadata, created_at }) {
        const values = [JSON.stringify(items), total, JSON.stringify(metadata)] as const;
        await session.all(insert_order, bucket, id, user_id, currency, ...values, created_at);
      },
    };
  }

  return {
    list(query: OrderQuery) {
      const { user_id, status } = query;
      if (user_id === undefined) {
        const listInStatus = status && lists_in_status.get(status);
        return (listInStatus ?? listAll)(query, []);
      }
      const filters = [bucketOf(user_id), user_id];
      return status === undefined
        ? listOfUser(query, filters)
        : listOfUserInStatus(query, [...filters, status]);
    },

    async get(id) {
      const found = await lookUp(id);
      return found && fromRow(found);
    },

    async place(fields, key) {
      try {
        return await idempotency.once(key, creationOf(fields));
      } catch (error) {
        if (!isForeignKeyViolation(error)) throw error;
        // The commit of a new user is recovered on a server that was killed during it, which takes a while.
        if (await hasUser(fields.user_id))
          fail("unavailable", "the user is not on all servers yet");
        return failField("user_id", "must be an existing user");
      }
    },

    update(id, edit, preconditions) {
      return db.change(`orders ${id}`, async (session) => {
        const found = await findOrder(session, id);
        if (found === null) return null;
        const current = fromRow(found);
        requirePreconditions(current, preconditions);
        const changed = edit(current);
        if (changed === null) return current;
        const time = now().toISOString();
        const row = await session.first<StoredOrder>(
          move_statements.get(`${current.status} ${changed.status}`) ?? update_order,
          found.bucket,
          id,
          current.version,
          changed.status,
          JSON.stringify(changed.metadata),
          time > current.updated_at ? time : current.updated_at,
        );
        if (row === null) throw version_conflict;
        return fromRow(row);
      });
    },
  };
}
