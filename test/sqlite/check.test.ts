import { Database } from "bun:sqlite";
import { afterAll, expect, test } from "bun:test";
import { newUser, orderFields, rename, setPaid, time } from "../contract/open.ts";
import { makePath, openDatabase, runSql } from "./open-database.ts";

const { directory, path } = makePath();
await (await openDatabase(path)).close();
const db = new Database(path, { strict: true });
afterAll(() => {
  db.close();
  feed.close();
});

/** More rows than a bucket of the middle level holds, with some deleted. */
db.run(`
  insert into users (email, email_key, metadata, version, created_at, updated_at)
  with recursive n (id) as (select 1 union all select id + 1 from n where id < 4500)
  select id || '@b.cd', id || '@b.cd', '{}', 1, '${time}', '${time}' from n
`);
db.run(`
  insert into orders (user_id, currency, items, total, status, metadata, version, created_at,
    updated_at)
  select 1 + id % 2, 'EUR', '[]', 0, 'pending', '{}', 1, '${time}', '${time}' from users
  order by id
`);
db.run(`insert into order_runs values (1, 4096, 0, '${time}', '${time}')`);
db.run("delete from users where id between 100 and 300 or id > 4490");
db.run("update orders set status = 'paid' where id between 50 and 3000 or id = 4450");

async function findingsAfter(sql: string, from = db): Promise<readonly string[]> {
  const copy = directory.at(`${crypto.randomUUID()}.db`);
  from.run("vacuum into $copy", [copy]);
  runSql(copy, sql);
  await using opened = await openDatabase(copy);
  return await opened.check();
}

test.each([
  [
    "a count is too high, missing, or of a list without counts",
    `update buckets set ids = ids + 1 where list = 'paid' and level = 1 and bucket = 1;
    delete from buckets where list = 'users' and level = 0 and bucket = 2;
    insert into buckets values ('orders', 0, 7, 1)`,
    [
      "the total of paid is wrong in bucket 1 of level 1",
      "the total of users is wrong in bucket 2 of level 0",
      "the total of orders is wrong in bucket 7 of level 0",
    ],
  ],
  [
    "runs have another time than their orders, or no order",
    `update order_runs set latest = '9';
    insert into order_runs values (8193, 12288, 1, '1', '2')`,
    [
      "the runs of orders 1 to 4096 do not match their times",
      "the runs of orders 8193 to 12288 do not match their times",
    ],
  ],
  [
    "a last id is lower than one that exists, or not a number",
    `update sqlite_sequence set seq = 4000 where name = 'users';
    update sqlite_sequence set seq = 'many' where name = 'orders'`,
    ["the last id of users is wrong", "the last id of orders is wrong"],
  ],
  [
    "the last id is much too high",
    "update sqlite_sequence set seq = 9223372036854775807",
    [
      "the last id of users is wrong",
      "the last id of orders is wrong",
      "the total of users is wrong in bucket 70 of level 0",
      "the total of orders is wrong in bucket 1 of level 1",
    ],
  ],
  [
    "an order has another total than its items, a larger refund, or no user, or records have more than 64 KiB",
    `pragma ignore_check_constraints = on;
    pragma foreign_keys = off;
    update orders set total = 7, items = '[{"sku":"a","quantity":2,"unit_price":3}]' where id = 8;
    update orders set refunded = 1 where id = 10;
    update orders set user_id = 200 where id = 4500;
    update users set metadata = '{"a":"' || printf('%.*c', 65536, 'x') || '"}' where id = 8;
    update orders set items = '["' || printf('%.*c', 65536, 'x') || '"]' where id = 9`,
    [
      "the total of order 8 does not match its items",
      "CHECK constraint failed in orders",
      "row 4500 of orders references a missing row",
      "row 8 of users is larger than 65536 bytes of JSON",
      "row 9 of orders is larger than 65536 bytes of JSON",
    ],
  ],
  [
    "another program has written JSON that is malformed, of another type or JSON5",
    `update users set metadata = '{' where id = 8;
    update orders set items = 'null' where id = 9;
    update orders set metadata = '{a:1}' where id = 10;
    insert into idempotency_keys (owner, key, fingerprint, record, created_at)
    values ('o', 'k', 'f', '[]', '${time}')`,
    [
      "metadata of row 8 of users is not a JSON object",
      "items of row 9 of orders is not a JSON array",
      "metadata of row 10 of orders is not a JSON object",
      "record of row 1 of idempotency_keys is not a JSON object",
    ],
  ],
])("check reports it when %s", async (_what, sql, findings) => {
  expect(await findingsAfter(sql)).toEqual(expect.arrayContaining(findings));
});

test("check finds no problem when the items add up to the total, but exceed 64 bits on the way", async () => {
  const large = 2 ** 53 - 1;
  const text = JSON.stringify([
    { quantity: 1_000_000, unit_price: large },
    { quantity: 1_000_000, unit_price: 1 - large },
    { quantity: 7, unit_price: -1 },
  ]);
  const set = `update orders set items = '${text}', total = 999993`;
  expect(await findingsAfter(`${set} where id = 8`)).toEqual([]);
  const wrong = ["the total of order 8 does not match its items"];
  expect(await findingsAfter(`${set} + 1 where id = 8`)).toEqual(wrong);
});

/** @returns a database with six changes */
async function makeFeed(): Promise<Database> {
  const source = directory.at("feed.db");
  await using feed = await openDatabase(source);
  const { id } = await newUser(feed); // 1
  const gone = await newUser(feed); // 2
  await feed.users.update(id, rename, null); // 3
  await feed.users.remove(gone.id, null); // 4
  await feed.orders.create(orderFields(id), null); // 5
  await feed.orders.update(1, setPaid, null); // 6
  return new Database(source);
}
const feed = await makeFeed();

const ofUser = (id: number) => `the changes of user ${id} do not ascend by one`;
const unlinked = (what: string) => `${what} does not name its last change`;
const lastOf = (record: string) => `the last change of ${record} does not agree with the record`;

test.each<[sql: string, ...findings: string[]]>([
  ["select 1"],
  ["delete from changes where id <= 4"],
  ["update changes set previous = null where id = 3", unlinked("change 3")],
  [
    "update changes set previous = 5 where id in (2, 4)",
    unlinked("change 2"),
    unlinked("change 4"),
  ],
  [
    "update users set last_change = 2; update orders set last_change = null",
    unlinked("user 1"),
    unlinked("order 1"),
  ],
  ["delete from changes where id <= 5; update users set last_change = 6", unlinked("user 1")],
  [
    "delete from changes where id = 2",
    unlinked("change 4"),
    "the changes are not consecutive: 5 of them from 1 to 6",
  ],
  [
    "update changes set version = 3 where id = 3; update users set version = 3 where id = 1",
    `${ofUser(1)}: version 3 follows 1`,
  ],
  ["update changes set version = 2 where id = 4", `${ofUser(2)}: version 2 follows 1`],
  ["update changes set type = 1 where id = 3", `${ofUser(1)}: version 2 follows 1`],
  ["update users set version = 3 where id = 1", lastOf("user 1")],
  ["update orders set version = 1", lastOf("order 1")],
  ["update orders set status = 'shipped'", lastOf("order 1")],
  ["update changes set type = 3, version = 1 where id = 3", lastOf("user 1")],
])("check of a feed after: %s", async (sql, ...findings) => {
  expect(await findingsAfter(sql, feed)).toEqual(findings);
});
