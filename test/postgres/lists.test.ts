// Pages: how much of the database they read, at any depth.
import { expect } from "bun:test";
import type { OrderQuery } from "../../src/domain/order.ts";
import { orderFields } from "../contract/open.ts";
import { expectRejection } from "../support/expect-error.ts";
import { cluster, expectPages, recordStatements, storedTime, test } from "./postgres-harness.ts";

const RECORDS = 20_000;
const LIMIT = 20;
const DEEP = RECORDS - 2_000;

/** The first orders are delivered, the next ones paid, and the last ones pending, as in a shop that delivers. */
const DELIVERED = 14_000;
const PENDING = 30;
const LARGE_USER = 1;
const SMALL_USER = 7;

const fill = `
  insert into users (id, email, email_key, metadata, version, created_at, updated_at)
  select n, n::text || '@example.com', n::text || '@example.com', format('{"x":"%s"}', repeat('x', 200)), 1, ${storedTime}, ${storedTime}
  from generate_series(1, ${RECORDS}) as n;

  insert into orders (
    id, user_id, currency, items, total, status, metadata, version, created_at, updated_at
  )
  select
    n, case when n % 10 = 0 then ${LARGE_USER} else 1 + n % 1000 end, 'EUR', '[]', 0,
    case
      when n <= ${DELIVERED} then 'delivered'
      when n <= ${RECORDS - PENDING} then 'paid'
      else 'pending'
    end, format('{"x":"%s"}', repeat('x', 200)), 1, to_char(timestamp '2026-01-01' + make_interval(mins => n), 'YYYY-MM-DD"T"HH24:MI:SS.000"Z"'), ${storedTime}
  from generate_series(1, ${RECORDS}) as n;
`;

/** Each of the tables has 700 pages. A page can read a page of its table for each row, and more to measure it. */
const MAX_PAGES = 70;
/** Without an offset, which is counted in an index. */
const MAX_PAGES_AT_START = 30;

const filters: readonly Partial<OrderQuery>[] = [
  {},
  { status: ["pending"] },
  { status: ["paid"] },
  { status: ["delivered"] },
  { user_id: LARGE_USER },
  { user_id: SMALL_USER },
  { user_id: LARGE_USER, status: ["delivered"] },
  { user_id: LARGE_USER, status: ["pending"] },
  { status: ["pending", "canceled"] },
  { status: ["pending", "delivered"] },
  { user_id: SMALL_USER, status: ["pending", "delivered"] },
  // An hour, 50 orders of it, and those of a user.
  { created_from: "2026-01-08T00:00:00.000Z", created_to: "2026-01-08T01:00:00.000Z" },
  { created_to: "2026-01-01T01:00:00.000Z", status: ["delivered", "paid"] },
  { created_from: "2026-01-08T00:00:00.000Z", user_id: SMALL_USER },
];
const places = [
  { offset: 0 },
  { offset: 0, after: DEEP },
  { offset: 1_500 },
  { offset: RECORDS - 2 * LIMIT },
];

test("pages read about their own rows, whatever the filter, the order, the limit and the depth", async (world) => {
  await world.run(fill);
  await world.run("vacuum analyze");
  const opened = world.connect(world.urlWith("max=1"));
  const { users, orders, sent } = recordStatements(opened);
  const pages = (["id", "-id"] as const).flatMap((sort) =>
    [LIMIT, 100].flatMap((limit) => places.map((place) => ({ limit, sort, ...place }))),
  );
  for (const query of pages) {
    for (const filter of filters) await orders.list({ ...query, ...filter });
    await users.list(query);
    const { limit, offset } = query;
    const most = (offset === 0 ? MAX_PAGES_AT_START : MAX_PAGES) + (limit > 50 ? 2 : 1) * limit;
    expect(sent).toHaveLength(filters.length + 1);
    for (const { statement, values } of sent.splice(0))
      await expectPages(opened, most, statement, values);
  }
});

test("plans that were made for empty tables do not read large ones as a whole", async (world) => {
  await world.run("analyze");
  const store = await world.open({ databaseUrl: world.urlWith("max=1") });
  const key = { owner: "a", key: "1", fingerprint: "f" };
  const use = async () => {
    await store.users.list({ limit: LIMIT, offset: 0 });
    await store.orders.list({ limit: LIMIT, offset: 0 });
    await store.orders.get(1);
    await expectRejection(store.orders.create(orderFields(9e9), key), "validation_failed");
  };
  const scans =
    "select relname, seq_scan from pg_stat_user_tables where relname in ('users', 'orders', 'idempotency_keys') order by relname";
  await use();
  await world.run(fill);
  const before = await world.run(scans);
  await use();
  await store.close();
  await cluster?.disconnect(world.url);
  expect(await world.run(scans)).toEqual(before);
});
