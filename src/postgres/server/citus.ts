/**
 * Several servers: Citus distributes the orders over its workers by their users, and copies the users to all. Everything
 * else is on the coordinator. What is special about it is here, except that `record-writes.ts` moves orders between servers,
 * and `errors.ts` knows the messages of Citus.
 */
import { fail } from "../../base/error.ts";
import type { Order } from "../../domain/order.ts";
import type { RecordText } from "../../domain/record.ts";
import { type Filters, type Session, selectWhere } from "./connection.ts";
import { orderMissing } from "./errors.ts";
import type { Placement } from "./placement.ts";

/**
 * - Connections per worker and statement. With more, a batch takes ten times as long, and a busy cluster runs out of
 *   connections.
 * - The rows are mostly text, of which the binary form is not smaller, and each statement takes less time without it.
 * - Workers get the settings of a transaction that are set by separate statements.
 * - Citus cannot plan without parameters. The role may have the setting of one server, as behind a pooler.
 */
const settings = {
  "citus.enable_binary_protocol": "off",
  "citus.max_adaptive_executor_pool_size": 1,
  "citus.propagate_set_commands": "local",
  plan_cache_mode: "auto",
};

/**
 * Changes nothing, but makes Citus commit in two phases. It does so if a transaction writes on several servers, but does not
 * know of the tables of the coordinator: it would commit an order on its worker first, and a crash of the coordinator
 * would lose the change and the entry in the index.
 */
const twoPhaseCommit = "delete from two_phase_commit where id = 0";
/** The same for rows that Citus sends by COPY, to which it does not apply this rule: users are on several servers. */
const twoPhaseCopy = "delete from users where id = 0";

/** A transaction that writes users, which are on every server, must use one connection per server for orders, too. */
const sequentialMode = "set local citus.multi_shard_modify_mode to 'sequential'";

const selectWorkers = `
  select pg_catalog.count(*) as workers
  from pg_catalog.pg_dist_node
  where noderole::text = 'primary' and shouldhaveshards and groupid > 0
`;
const citusVersion = `
  select pg_catalog.substring(extversion, '^[0-9]+(?:[.][0-9]+)?')::numeric >= 11.1 as supported
  from pg_catalog.pg_extension
  where extname = 'citus'
`;

/** @returns the number of workers, 0 without the extension */
export async function countWorkers(session: Session): Promise<number> {
  const citus = await session.first<{ supported: boolean }>(citusVersion);
  if (citus === null) return 0;
  if (!citus.supported) fail("operator", "Citus 11.1 or newer is required");
  return (await session.first<{ workers: number }>(selectWorkers))?.workers ?? 0;
}

/** Distributes the tables with their rows. A server that still has the old layout cannot create: the sequence has a new name. */
export const distribution: readonly string[] = [
  "set local citus.shard_replication_factor to 1",
  sequentialMode,
  "alter table orders drop constraint orders_pkey",
  "drop index orders_reference",
  "alter table orders add primary key (id, user_id)",
  "alter sequence orders_id_seq rename to order_numbers",
  // Leads a read of one order to its shard, and makes ids and references unique.
  `create table order_index (
    id bigint primary key,
    user_id bigint not null,
    reference text collate "C"
  )`,
  "create unique index order_references on order_index (reference) where reference is not null",
  "insert into order_index (id, user_id, reference) select id, user_id, reference from orders",
  "create table two_phase_commit (id integer primary key)",
  "select pg_catalog.create_reference_table('users')",
  "select pg_catalog.create_distributed_table('orders', 'user_id')",
  "select pg_catalog.citus_add_local_table_to_metadata('two_phase_commit')",
];

export async function distribute(session: Session): Promise<void> {
  for (const statement of distribution) await session.script(statement);
}

/** Frees the space of rows that were distributed, which no statement reads. It must be a separate transaction. */
export const truncateLocalData = `
  select pg_catalog.truncate_local_data_after_distributing_table('users')
  where pg_catalog.pg_relation_size('users') + pg_catalog.pg_relation_size('orders') > 0
`;

/** Parameters that are compared as they are lead Citus to a shard; the results of a subquery do not. */
async function findOrders(
  session: Session,
  columns: string,
  { status, created_from = "", created_to = "~", ...indexed }: Filters,
): Promise<readonly RecordText<Order>[]> {
  type Entry = Pick<Order, "id" | "user_id">;
  const entries = await selectWhere<Entry>(session, "id, user_id", "order_index", indexed);
  const [first] = entries;
  if (first === undefined) return [];
  const places =
    entries.length === 1
      ? { user_id: first.user_id, id: first.id }
      : { user_id: entries.map(({ user_id }) => user_id), id: entries.map(({ id }) => id) };
  const rows = await selectWhere<RecordText<Order>>(session, columns, "orders", places);
  // One that is moving can be found in both places: the later version remains.
  const inOrder = rows.toSorted((one, other) => one.version - other.version);
  const orders = new Map(inOrder.map((row) => [row.id, row]));
  if (orders.size < entries.length) throw orderMissing;
  const [from, to] = [String(created_from), String(created_to)];
  return [...orders.values()].filter(({ json }) => {
    const order: Order = JSON.parse(json);
    const isInStatus = status === undefined || (status as string[]).includes(order.status);
    return isInStatus && order.created_at >= from && order.created_at < to;
  });
}

/** Sums instead of a join, which Citus would perform by sending one of the tables to all servers. */
const indexSums = (table: string) => `
  select
    pg_catalog.count(*) as rows,
    pg_catalog.sum(pg_catalog.hashtextextended(
      pg_catalog.format('%s %s %s', id, user_id, reference), 0)::numeric) as hashes
  from ${table}
`;
const wrongIndex = `
  select 'the index of orders does not match the orders' as problem
  from (${indexSums("order_index")}) as index
  cross join (${indexSums("orders")}) as orders
  where index.rows <> orders.rows or index.hashes is distinct from orders.hashes
`;

export const severalServers: Placement = {
  settings,
  orderIds: "order_numbers",
  uniqueTables: { users: "users", orders: "order_index" },
  // Not the orders as well: Citus sends the rows of a CTE to all workers, so one that is missing would prevent all creates.
  insertIndex: `
    insert into order_index (id, user_id, reference)
    select id, user_id, reference
    from decided
    where is_created
  `,
  // With the ids as a parameter, so that PostgreSQL reads no others.
  updateIndex: `
    indexed as (
      update order_index
      set user_id = input.user_id, reference = input.reference
      from input
      where order_index.id = any($2::bigint[])
        and order_index.id = input.id
        and order_index.id in (select id from written)
    )
  `,
  ofUsers: "orders.user_id = any($3::bigint[])",
  findOrders,
  beforeCopy: [sequentialMode, twoPhaseCommit, twoPhaseCopy],
  beforeWrite: [twoPhaseCommit],
  // Every shard reads as many ids as the offset.
  maxOffset: 10_000,
  checks: [["the index of orders", wrongIndex]],
};
