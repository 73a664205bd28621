// The constraints of the tables, which hold even if a check of the input is missing.
import { Database } from "bun:sqlite";
import { afterAll, expect, test } from "bun:test";
import { newUser, orderFields, userFields } from "../contract/open.ts";
import { makePath, openDatabase } from "./open-database.ts";

const { path } = makePath();

/** Two users, orders and tokens, a key, and a count. */
const store = await openDatabase(path);
const { id } = await newUser(store);
await store.users.create(userFields(), { owner: "a", key: "a", fingerprint: "a" });
for (const name of ["a", "b"]) {
  await store.orders.create(orderFields(id), null);
  await store.tokens.create({ hash: name.repeat(64), name, scope: "write", expires_at: null });
}
await store.close();
const db = new Database(path);
db.run("pragma foreign_keys = on");
db.run("insert into buckets (list, level, bucket, ids) values ('a', 0, 0, 0)");
db.run("insert into order_runs values (1, 2, 0, 'a', 'b')");
afterAll(() => db.close());

/** Times that JSON could not contain as they are, or that do not sort. */
const badTimes = ["null", "'t'", `'2026-11-20T18:57:03.120"'`, "'2026-11-20T18:57:03Z'"];
const badTotals = ["null", "-1", "9007199254740992", "0.5", "'a'"];
const badReferences = ["''", `'${"a".repeat(256)}'`, "'taken'"];

/** Values that a column rejects. Each is set in all rows, so two of them cannot have one that must be unique. */
const rejected: [string, string, string[]][] = [
  ["users", "email", ["null", "''", "'ab'", `'${"a".repeat(255)}'`, "x'00'"]],
  ["users", "email_key", ["null", "'taken'"]],
  ["users", "name", ["''", `'${"a".repeat(201)}'`]],
  ["orders", "user_id", ["null", "9", "'a'", "1.5"]],
  ["orders", "currency", ["null", "'EU'", "'EURO'", "'eur'", `'E"R'`]],
  ["orders", "items", ["null"]],
  ["orders", "total", badTotals],
  ["orders", "refunded", badTotals],
  ["orders", "status", ["null", "'open'", "'Pending'", "''"]],
  ...["users", "orders"].flatMap((table): typeof rejected => [
    [table, "reference", badReferences],
    [table, "metadata", ["null"]],
    [table, "version", ["null", "0", "'a'", "1.5"]],
    [table, "created_at", badTimes],
    [table, "updated_at", badTimes],
  ]),
  ["tokens", "hash", ["null", "'abc'", `'${"0".repeat(64)}'`]],
  ["tokens", "name", ["null", "''", "'taken'", `'${"a".repeat(101)}'`]],
  ["tokens", "scope", ["null", "''"]],
  ["idempotency_keys", "owner", ["null"]],
  ["idempotency_keys", "key", ["null", "''", `'${"a".repeat(256)}'`]],
  ["idempotency_keys", "fingerprint", ["null"]],
  ["idempotency_keys", "record", ["null"]],
  ["buckets", "level", ["null", "-1", "4", "'a'"]],
  ["buckets", "bucket", ["null", "-1"]],
  ["buckets", "ids", ["null", "-1"]],
  ["order_runs", "first", ["0", "3"]],
  ["order_runs", "last", ["null", "0"]],
  ["order_runs", "direction", ["null", "-2", "2"]],
  ["order_runs", "earliest", ["null", "'c'"]],
  ["order_runs", "latest", ["null", "''"]],
];

for (const [table, column, values] of rejected)
  test(`${table} rejects a row only when its ${column} is out of bounds`, () => {
    db.run(`update ${table} set ${column} = ${column}`);
    for (const value of values) {
      const write = () => db.run(`update ${table} set ${column} = ${value}`);
      expect(write, value.slice(0, 40)).toThrow(/constraint|cannot store|malformed/i);
    }
  });

test("the tables keep users that have orders, and all orders", () => {
  expect(() => db.run("delete from users where id = 1")).toThrow(/FOREIGN KEY/);
  expect(() => db.run("delete from orders")).toThrow(/orders are never deleted/);
});
