// A page of a list or of an export reads about as many rows as it has, at any depth. PostgreSQL counts them, so that
// the tests depend neither on the statements nor on the speed of the machine.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Maybe } from "../../src/maybe.ts";
import type { OrderQuery } from "../../src/order.ts";
import { connect, type Database } from "../../src/postgres/connection.ts";
import { createContext } from "../../src/postgres/context.ts";
import { createPlainOrderStore } from "../../src/postgres/orders.ts";
import type { Store } from "../../src/store.ts";
import { listed } from "../listed.ts";
import { cluster, type Harness, makeHarness, storedTime } from "./postgres-harness.ts";

const RECORDS = 20_000;
/** The ids after which pages begin. */
const starts = [0, RECORDS - 2_000];
const LIMIT = 20;
/** Rows that a page may read for each of its own: a filter skips the rows that do not match. */
const READS_PER_ROW = 10;
/** A prepared statement can change its plan after five executions. */
const EXECUTIONS = 8;

/** The first orders are delivered, the next ones paid, and the last ones pending, as in a shop that delivers. */
const DELIVERED = 14_000;
const PENDING = 30;
const LARGE_USER = 1;
const SMALL_USER = 7;

const fill = `
  insert into users (email, email_key, metadata, version, created_at, updated_at)
  select n || '@example.com', n || '@example.com', '{}', 1, ${storedTime}, ${storedTime}
  from generate_series(1, ${RECORDS}) as n;

  insert into orders (
    user_id, currency, items, total, status, metadata, version, created_at, updated_at
  )
  select
    case when n % 10 = 0 then ${LARGE_USER} else 1 + n % 1000 end, 'EUR', '[]', 0,
    case
      when n <= ${DELIVERED} then 'delivered'
      when n <= ${RECORDS - PENDING} then 'paid'
      else 'pending'
    end, '{}', 1, ${storedTime}, ${storedTime}
  from generate_series(1, ${RECORDS}) as n;
`;

/** Counts index entries as well. */
const rowsRead = `
  select sum(rows)::integer as rows
  from (
    select seq_tup_read from pg_stat_user_tables where relname in ('users', 'orders')
    union all
    select idx_tup_read from pg_stat_user_indexes where relname in ('users', 'orders')
  ) as counted (rows)
`;
/** Counts only rows that were read from their table. */
const rowsFetched = `
  select sum(seq_tup_read + idx_tup_fetch)::integer as rows
  from pg_stat_user_tables
  where relname in ('users', 'orders')
`;
/** The name of the connections whose reads are counted. */
const READER = "reader";
const readers = `
  select
  from pg_stat_activity
  where datname = current_database() and application_name = '${READER}'
`;

describe.if(cluster !== null)("a page", () => {
  let world: Harness;
  beforeAll(async () => {
    world = await makeHarness();
    await world.run(fill);
    await vacuum();
  });
  afterAll(() => world[Symbol.asyncDispose]());

  /**
   * Afterwards, an index alone shows which rows exist. PostgreSQL leaves pages out while an older snapshot is open, such as
   * that of an automatic ANALYZE, and the few pages that only have deleted rows, unless it must clean the indexes.
   */
  async function vacuum(): Promise<void> {
    for (let isWhole: boolean | undefined = false; !isWhole; await Bun.sleep(10)) {
      await world.run("vacuum (analyze, index_cleanup on)");
      const [row] = await world.run<{ isWhole: boolean }>(`
        select bool_and(relallvisible >= relpages) as "isWhole"
        from pg_class
        where relname in ('users', 'orders')
      `);
      isWhole = row?.isWhole;
    }
  }

  /** @returns what the statement counts. A connection reports when its process ends. */
  async function countRows(counter: string): Promise<number> {
    while ((await world.run(readers)).length > 0) await Bun.sleep(5);
    for (let last = Number.NaN; ; ) {
      const [{ rows = 0 } = {}] = await world.run<{ rows: number }>(counter);
      if (rows === last) return rows;
      last = rows;
      await Bun.sleep(50);
    }
  }

  /** @returns what the work reads on average */
  async function countReads(
    work: (store: Store) => Maybe<unknown>,
    counter = rowsRead,
  ): Promise<number> {
    const before = await countRows(counter);
    const databaseUrl = world.urlWith(`max=2&application_name=${READER}`);
    const store = await world.open({ databaseUrl });
    for (let at = 0; at < EXECUTIONS; at += 1) await work(store);
    await store.close();
    return ((await countRows(counter)) - before) / EXECUTIONS;
  }

  async function ordersOf(userId: number): Promise<number> {
    const statement = `select count(*)::integer as orders from orders where user_id = ${userId}`;
    return (await world.run<{ orders: number }>(statement))[0]?.orders ?? 0;
  }

  const filters: readonly OrderQuery[] = [
    {},
    { status: "pending" },
    { status: "paid" },
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

  // Pages of one user behind an offset of 1,000 rows are not shared.
  test.each(filters.flatMap((query) => [0, 900, 1_500].map((offset) => ({ ...query, offset }))))(
    "of orders fetches only its own rows when the query is %j",
    async (query) => {
      const reads = await countReads((store) => store.orders.list(query), rowsFetched);
      expect(reads).toBeLessThanOrEqual(LIMIT);
    },
    20_000,
  );

  test.each(filters.filter(({ user_id }) => user_id === LARGE_USER))(
    "of orders counts 1001 orders at most in a statement for several pages when the query is %j",
    async (query) => {
      const databaseUrl = world.urlWith(`max=1&application_name=${READER}`);
      const opened = connect({ databaseUrl });
      const db: Database = {
        ...opened,
        runAdmitted: (access, work, options) =>
          options?.client === undefined
            ? opened.runAdmitted(access, work, options)
            : Promise.reject(new Error("a statement of its own")),
      };
      const orders = createPlainOrderStore(createContext({ db, now: () => new Date() }));
      const before = await countRows(rowsRead);
      for (const after of starts) {
        const listing = Promise.resolve(orders.list({ ...query, after }, "a"));
        await expect(listing).rejects.toThrow("a statement of its own");
      }
      await opened.close();
      const reads = (await countRows(rowsRead)) - before;
      expect(reads).toBeGreaterThan(0);
      expect(reads).toBeLessThanOrEqual(starts.length * 1001);
    },
    20_000,
  );

  test("of users fetches only its own rows when it begins at an offset", async () => {
    const query = { limit: LIMIT, offset: RECORDS - 2 * LIMIT };
    const reads = await countReads((store) => store.users.list(query), rowsFetched);
    expect(reads).toBe(LIMIT);
  }, 20_000);

  test.each(starts)(
    "of users reads few rows when it begins after id %d",
    async (after) => {
      const query = { limit: LIMIT, offset: 0, after };
      const reads = await countReads((store) => store.users.list(query));
      expect(reads).toBeGreaterThan(0);
      expect(reads).toBeLessThanOrEqual(LIMIT * READS_PER_ROW);
    },
    20_000,
  );

  test.each(["users", "orders"] as const)(
    "of an export of %s reads few rows at any depth",
    async (table) => {
      for (const after of starts) {
        const reads = await countReads(({ bulk }) => bulk[table].exportPage(after, LIMIT, "id"));
        expect(reads).toBeGreaterThan(0);
        expect(reads).toBeLessThanOrEqual(LIMIT * READS_PER_ROW);
      }
    },
    20_000,
  );

  describe("of large records", () => {
    /** They exceed the size of a small page. */
    const orders = 120;
    const skipped = 40;
    const largeUserId = RECORDS;
    const page = { limit: 1000, offset: 0, user_id: largeUserId };

    beforeAll(async () => {
      // Random text, which is not compressed.
      await world.run(`
        insert into orders (
          user_id, currency, items, total, status, metadata, version, created_at, updated_at
        )
        select
          ${largeUserId}, 'EUR',
          (select json_agg(md5((n * 1000 + item)::text)) from generate_series(1, 300) as item), 0,
          'shipped', '{}', 1, ${storedTime}, ${storedTime}
        from generate_series(1, ${orders}) as n
      `);
      await world.run("vacuum (analyze, index_cleanup on)");
    });

    test("fetches no row that it skips when it begins at an offset", async () => {
      const listOf = (offset: number) => async (store: Store) => {
        const { rows } = await listed(store.orders.list({ ...page, offset }));
        expect(rows).toHaveLength(orders - offset);
      };
      const all = await countReads(listOf(0), rowsFetched);
      const last = await countReads(listOf(skipped), rowsFetched);
      // Each slice fetches the rows that follow it as well.
      const lastAfter = await countReads(async (store) => {
        const [first] = (await listed(store.orders.list({ ...page, limit: 1, offset: skipped })))
          .rows;
        await listed(store.orders.list({ ...page, after: first.id - 1 }));
      }, rowsFetched);
      expect(last).toBeLessThan(all);
      expect(last).toBeLessThanOrEqual(lastAfter);
    }, 20_000);
  });
});
