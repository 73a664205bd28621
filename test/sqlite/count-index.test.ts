// The counts that locate a page, on tables large enough to use every level of buckets.
import { Database } from "bun:sqlite";
import { afterAll, expect, test } from "bun:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { type OrderStatus, orderStatuses } from "../../src/domain/order.ts";
import { sorts } from "../../src/domain/page.ts";
import { expectPage } from "../contract/expect-page.ts";
import { newUser, orderFields, time } from "../contract/open.ts";
import { makeDirectory } from "../support/directory.ts";
import { makeRandom } from "../support/random.ts";
import { openDatabase } from "./open-database.ts";

/** More than the 262,144 ids of a top-level bucket. */
const USERS = 270_000;
/** More than the 4,096 ids of a middle one: inserting an order takes longer than a user. */
const ORDERS = 5000;

const directory = makeDirectory();
const path = directory.at("a.db");

const some = (count: number) =>
  `with recursive n (id) as (select 1 union all select id + 1 from n where id < ${count})`;

await (await openDatabase(path)).close();
const db = new Database(path, { strict: true });
db.run("pragma foreign_keys = on");
db.run(`
  insert into users (email, email_key, name, metadata, version, created_at, updated_at)
  ${some(USERS)}
  select id || '@b.cd', id || '@b.cd', null, '{}', 1, '${time}', '${time}'
  from n
`);
db.run(`
  insert into orders (user_id, currency, items, total, status, metadata, version, created_at,
    updated_at)
  ${some(ORDERS)}
  select 1, 'EUR', '[]', 0, 'pending', '{}', 1, '${time}', '${time}'
  from n
`);
const store = await openDatabase(path);
afterAll(async () => {
  await store.close();
  db.close();
  directory[Symbol.dispose]();
});

/** Offsets where errors are likely: at the ends, and around the edges of buckets. */
function offsetsFor(total: number, random: (below: number) => number): number[] {
  const edges = [64, 4096, 8192, 262_144].flatMap((edge) => [edge - 1, edge, edge + 1]);
  const spread = Array.from({ length: 10 }, () => random(total + 1));
  return [0, 1, total - 2, total - 1, total, total + 1, ...edges, ...spread].filter(
    (at) => at >= 0,
  );
}

async function expectPages(table: "users" | "orders", status?: OrderStatus[]): Promise<void> {
  // Then the store sees the writes of the other connection.
  await nextTurn();
  const where = status === undefined ? "true" : `status in ('${status.join("', '")}')`;
  const selected = db.prepare(`select id from ${table} where ${where} order by id`);
  const ids = selected.values().flat() as number[];
  const random = makeRandom(7);
  for (const offset of offsetsFor(ids.length, random)) {
    const query = { limit: 1 + random(70), offset, ...(status && { status }) };
    const after = { ...query, offset: 0, after: ids[offset] ?? 0 };
    for (const sort of sorts) {
      await expectPage(store[table].list, ids, { ...query, sort });
      await expectPage(store[table].list, ids, { ...after, sort });
    }
  }
}

async function expectOrders(): Promise<void> {
  for (const [at, status] of orderStatuses.entries()) {
    await expectPages("orders", [status]);
    await expectPages(
      "orders",
      orderStatuses.filter((one) => one !== status),
    );
    await expectPages("orders", orderStatuses.slice(at, at + 2));
  }
}

/** On top of the previous ones. The first user has the orders. */
test.each([
  "delete from users where id between 129 and 192 or id between 8100 and 12400",
  `delete from users where id > ${USERS - 100} or id in (64, 65, 4096, 4097, 262144, 262145)`,
  "delete from users where id > 1 and id % 7 = 0",
  "delete from users where id between 2 and 262100",
  "delete from users where id > 1",
  "update orders set status = 'paid' where id between 65 and 128 or id = 4097",
  "update orders set status = 'shipped' where id % 3 = 0",
  "update orders set status = 'canceled' where id <= 4096",
  "update orders set status = 'pending' where id % 5 = 0",
  "update orders set status = 'paid'",
])("lists return every page after: %s", async (change) => {
  db.run(change);
  if (!change.includes("users")) return await expectOrders();
  await expectPages("users");
  if (!change.endsWith("id > 1")) return;
  // New users follow deleted ones.
  expect((await newUser(store)).id).toBe(USERS + 1);
  await expectPages("users");
});

test("orders.list returns every page of a status when ids span more than 64 top-level buckets", async () => {
  // A top-level bucket has 262,144 ids.
  const first = 262_200;
  const count = 66;
  const records = Array.from({ length: count }, (_, at) => ({
    ...orderFields(1),
    status: at % 2 === 0 ? ("pending" as const) : ("paid" as const),
    id: first * (at + 1),
    version: 1,
    created_at: time,
    updated_at: time,
  }));
  await store.bulk.orders.import(records);
  expect((await store.orders.list({ limit: 1, offset: 0 })).total).toBe(ORDERS + count);
  await expectOrders();
  db.run(
    `update orders set status = 'canceled' where status = 'pending' and id % ${3 * first} <> 0`,
  );
  await expectOrders();
  // Pages do not depend on every level.
  expect((await store.check()).filter((finding) => finding.includes("bucket"))).toEqual([]);
});
