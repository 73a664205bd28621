// Statements that requests share: how many there are, and how PostgreSQL runs them.
import { describe, expect, test } from "bun:test";
import type { Maybe } from "../../src/maybe.ts";
import type { Database, Session } from "../../src/postgres/connection.ts";
import { createContext } from "../../src/postgres/context.ts";
import { createPlainOrderStore } from "../../src/postgres/orders.ts";
import { createTokenStore } from "../../src/postgres/tokens.ts";
import { createPlainUserStore } from "../../src/postgres/users.ts";
import { newUser, orderFields, parsed, userFields } from "../contract/open.ts";
import { listed } from "../listed.ts";
import { cluster, type Harness, makeHarness, storedTime } from "./postgres-harness.ts";

/** The stores on one connection, so that its prepared statements can be looked at. */
function openOnOneConnection({ connect, urlWith }: Harness) {
  const opened = connect(urlWith("max=1"));
  const sent = { reads: 0, maxAtOnce: 0, clients: [] as (string | undefined)[] };
  let running = 0;
  const recorded =
    (run: Database["run"]): Database["run"] =>
    async (access, work, options) => {
      if (access !== "write") sent.reads += 1;
      if (access === "list") sent.clients.push(options?.client);
      running += 1;
      sent.maxAtOnce = Math.max(sent.maxAtOnce, running);
      try {
        return await run(access, work, options);
      } finally {
        running -= 1;
      }
    };
  const db: Database = {
    ...opened,
    run: recorded(opened.run),
    runAdmitted: recorded(opened.runAdmitted),
  };
  const now = () => new Date();
  const context = createContext({ db, now });
  return {
    db,
    sent,
    users: createPlainUserStore(context),
    orders: createPlainOrderStore(context),
    tokens: createTokenStore(context),
  };
}

interface Prepared {
  readonly name: string;
  readonly statement: string;
  readonly parameters: number;
}

const preparedStatements = `
  select name, statement, cardinality(parameter_types) as parameters
  from pg_prepared_statements
  where statement like '%$1::text::json%'
`;

describe.if(cluster !== null)("statements that requests share", () => {
  test("read no whole table when PostgreSQL planned them while the tables were empty", async () => {
    await using world = await makeHarness();
    // From now on, PostgreSQL knows that they are empty.
    await world.run("vacuum analyze");
    const store = openOnOneConnection(world);
    const page = { limit: 10, offset: 0 };
    const key = { owner: "a", key: "b", fingerprint: "c" };
    await store.users.get(1);
    await store.users.list(page);
    await store.users.list({ ...page, email: "a@b.c" });
    await store.orders.get(1);
    await store.orders.list({ ...page, after: 0 });
    await store.orders.list({ ...page, status: "paid" });
    await store.orders.list({ ...page, user_id: 1 });
    await store.orders.list({ ...page, user_id: 1, status: "paid" });
    await store.tokens.find("a");
    const { record } = await store.users.create(userFields(), key);
    await store.orders.place(orderFields(record.id), null);
    const explainAll = async (session: Session) => {
      await session.script("set local plan_cache_mode = force_generic_plan");
      const prepared = await session.all<Prepared>(preparedStatements);
      const explained: string[] = [];
      for (const { name, parameters } of prepared) {
        const values = Array.from({ length: parameters }, () => "null").join(", ");
        const explain = `explain execute "${name}" (${values})`;
        const lines = await session.all<{ "QUERY PLAN": string }>(explain);
        explained.push(lines.map((line) => line["QUERY PLAN"]).join("\n"));
      }
      return explained;
    };
    const plans = await store.db.run("write", explainAll, { transaction: true });
    expect(plans).toHaveLength(11);
    for (const plan of plans) {
      expect(plan).toContain("Function Scan on json");
      // The counts are 96 rows.
      expect(plan).not.toMatch(/Seq Scan on (?!counts)/);
      // All keys that have not expired, or all orders of a list.
      expect(plan).not.toMatch(/idempotency_keys_by_time|orders_pkey.*\n.*Index Cond.*\n *Filter/);
    }
  });

  test("fail alone when one of them fails or takes too long", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    const ids: number[] = [];
    for (let n = 0; n < 4; n += 1) ids.push((await newUser(store)).id);
    const [damaged, slow] = ids.slice(1, 3);
    await world.run(`
      create function read_metadata(id bigint, metadata text) returns text language plpgsql immutable
      as $$
      begin
        if id = ${slow} then raise 'as at a timeout' using errcode = 'query_canceled'; end if;
        if id = ${damaged} then raise 'damaged on purpose' using errcode = 'data_corrupted'; end if;
        return metadata;
      end
      $$
    `);
    await world.run("alter table users rename to stored_users");
    await world.run(`
      create view users as
      select
        id, email, email_key, name, version, created_at, updated_at,
        read_metadata(id, metadata) as metadata
      from stored_users
    `);
    const outcomesOf = async (reads: readonly Maybe<unknown>[]) =>
      (await Promise.allSettled(reads)).map((result) =>
        result.status === "fulfilled" ? "read" : result.reason.message,
      );
    const expected = ["read", "damaged on purpose", "the database is busy", "read"];
    expect(await outcomesOf(ids.map((id) => store.users.get(id)))).toEqual(expected);
    const readPage = (id: number) => store.users.list({ limit: 1, offset: 0, after: id - 1 });
    expect(await outcomesOf(ids.map(readPage))).toEqual(expected);
    expect(await outcomesOf(ids.slice(2).map(readPage))).toEqual(expected.slice(2));
  });

  test("are sent once when many look-ups or pages are requested in one turn", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    const made = await Promise.all(Array.from({ length: 30 }, () => newUser(store)));
    const one = openOnOneConnection(world);
    const ids = made.map(({ id }) => id);
    const found = await Promise.all(
      [...ids, 99, ...ids.slice(0, 3)].map((id) => one.users.get(id)),
    );
    const byId = new Map(made.map((user) => [user.id, user]));
    expect(found.map((record) => parsed(record))).toEqual(
      [...ids, 99, ...ids.slice(0, 3)].map((id) => byId.get(id) ?? null),
    );
    expect(one.sent.reads).toBe(1);
    const pages = await Promise.all(
      [0, 5, 29, 30].map((offset) => listed(one.users.list({ limit: 2, offset }))),
    );
    const sorted = [...made].sort((left, right) => left.id - right.id);
    expect(pages).toEqual(
      [0, 5, 29, 30].map((offset) => ({ rows: sorted.slice(offset, offset + 2), total: 30 })),
    );
    expect(one.sent.reads).toBe(2);
    // A page that skips many rows does not delay the others.
    const offsets = [0, 5_000];
    await Promise.all(offsets.map((offset) => one.users.list({ limit: 2, offset })));
    expect(one.sent.reads).toBe(4);
    // Tokens that nobody has used before.
    const unknown = Array.from({ length: 500 }, (_, at) => one.tokens.find(`${at}`));
    expect(new Set(await Promise.all(unknown))).toEqual(new Set([null]));
    expect(one.sent.reads).toBe(5);
  });

  test("read no page of a user with more than 1000 orders, which has a statement of its client", async () => {
    await using world = await makeHarness();
    await world.run(`
      insert into users (email, email_key, metadata, version, created_at, updated_at)
      select n || '@b.c', n || '@b.c', '{}', 1, ${storedTime}, ${storedTime}
      from generate_series(1, 2) as n;

      insert into orders (
        user_id, currency, items, total, status, metadata, version, created_at, updated_at
      )
      select
        1 + n % 2, 'EUR', '[]', 0, case when n <= 2 then 'paid' else 'pending' end, '{}', 1, ${storedTime}, ${storedTime}
      from generate_series(1, 2001) as n
    `);
    // The last order is of the second user, who has 1001.
    const one = openOnOneConnection(world);
    const page = { limit: 1, offset: 0, after: 2 };
    const totalsOf = async (id: number) => {
      const queries = [page, { ...page, status: "paid" }, { ...page, status: "pending" }] as const;
      const pages = queries.map((query) => one.orders.list({ ...query, user_id: id }, "a"));
      return (await Promise.all(pages)).map(({ total }) => total);
    };
    expect(await totalsOf(1)).toEqual([1000, 1, 999]);
    // The pages in both statuses share one.
    expect(one.sent.clients).toEqual([undefined, undefined]);
    expect(await totalsOf(2)).toEqual([1001, 1, 1000]);
    expect(one.sent.clients.slice(2).sort()).toEqual(["a", "a", "a", undefined, undefined]);
  });
});
