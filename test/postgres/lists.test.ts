// A page of a list or of an export reads about as many rows as it has, at any depth. PostgreSQL counts them, so that
// the tests depend neither on the statements nor on the speed of the machine.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Maybe } from "../../src/maybe.ts";
import type { OrderQuery } from "../../src/order.ts";
import type { Store } from "../../src/store.ts";
import { cluster, type Harness, makeHarness } from "./postgres-harness.ts";

const RECORDS = 20_000;
/** The ids after which pages begin. */
const starts = [0, RECORDS - 2_000];
const LIMIT = 20;
/** Rows that a page may read for each of its own: a filter skips the rows that do not match. */
const READS_PER_ROW = 10;
/** A prepared statement can change its plan after five executions. */
const EXECUTIONS = 8;

/** The last orders are the only pending ones, as in a shop that delivers. */
const PENDING = 30;
const LARGE_USER = 1;
const SMALL_USER = 7;

const fill = `
  insert into users (email, email_key, metadata, version, created_at, updated_at)
  select n || '@example.com', n || '@example.com', '{}', 1, 't', 't'
  from generate_series(1, ${RECORDS}) as n;

  insert into orders (
    user_id, currency, items, total, status, metadata, version, created_at, updated_at
  )
  select
    case when n % 10 = 0 then ${LARGE_USER} else 1 + n % 1000 end, 'EUR', '[]', 0,
    case
      when n > ${RECORDS - PENDING} then 'pending'
      when n % 3 = 0 then 'paid'
      else 'delivered'
    end, '{}', 1, 't', 't'
  from generate_series(1, ${RECORDS}) as n;

  analyze;
`;

const serverVersion = "select current_setting('server_version_num')::integer as version";
const rowsRead = `
  select sum(rows)::integer as rows
  from (
    select seq_tup_read from pg_stat_user_tables where relname in ('users', 'orders')
    union all
    select idx_tup_read from pg_stat_user_indexes where relname in ('users', 'orders')
  ) as counted (rows)
`;

describe.if(cluster !== null)("a page", () => {
  let world: Harness;

  beforeAll(async () => {
    world = await makeHarness();
    await world.run(fill);
  });
  afterAll(() => world[Symbol.asyncDispose]());

  /** @returns the number of rows read so far by connections that are closed */
  async function countRows(): Promise<number> {
    const [{ version = 0 } = {}] = await world.run<{ version: number }>(serverVersion);
    // A connection reports when it is closed. Before version 15, its report can take half a second to appear.
    const intervalMs = version < 150_000 ? 600 : 50;
    for (let last = Number.NaN; ; ) {
      const [{ rows = 0 } = {}] = await world.run<{ rows: number }>(rowsRead);
      if (rows === last) return rows;
      last = rows;
      await Bun.sleep(intervalMs);
    }
  }

  /** @returns the number of rows that the work reads on average */
  async function countReads(work: (store: Store) => Maybe<unknown>): Promise<number> {
    const before = await countRows();
    const store = await world.open();
    for (let at = 0; at < EXECUTIONS; at += 1) await work(store);
    await store.close();
    const reads = ((await countRows()) - before) / EXECUTIONS;
    expect(reads).toBeGreaterThan(0);
    return reads;
  }

  async function ordersOf(userId: number): Promise<number> {
    const statement = `select count(*)::integer as orders from orders where user_id = ${userId}`;
    return (await world.run<{ orders: number }>(statement))[0]?.orders ?? 0;
  }

  const filters: readonly OrderQuery[] = [
    {},
    { status: "pending" },
    { status: "delivered" },
    { user_id: LARGE_USER },
    { user_id: SMALL_USER },
    { user_id: LARGE_USER, status: "delivered" },
    { user_id: LARGE_USER, status: "pending" },
  ].map((filter) => ({ limit: LIMIT, offset: 0, ...filter }) as OrderQuery);

  test.each(filters.flatMap((query) => starts.map((after) => [{ ...query, after }] as const)))(
    "of orders reads few rows when the query is %j",
    async (query) => {
      const { user_id } = query;
      // The total is counted, and with a status the page may skip the orders of the user that have another.
      const counted = user_id === undefined ? 0 : 2 * (await ordersOf(user_id));
      const reads = await countReads((store) => store.orders.list(query));
      expect(reads).toBeLessThanOrEqual(counted + LIMIT * READS_PER_ROW);
    },
    20_000,
  );

  test.each(starts)(
    "of users reads few rows when it begins after id %d",
    async (after) => {
      const query = { limit: LIMIT, offset: 0, after };
      const reads = await countReads((store) => store.users.list(query));
      expect(reads).toBeLessThanOrEqual(LIMIT * READS_PER_ROW);
    },
    20_000,
  );

  test.each(["users", "orders"] as const)(
    "of an export of %s reads few rows at any depth",
    async (table) => {
      for (const after of starts) {
        const reads = await countReads(({ bulk }) => bulk[table].exportPage(after, LIMIT));
        expect(reads).toBeLessThanOrEqual(LIMIT * READS_PER_ROW);
      }
    },
    20_000,
  );
});
