// The constraints of the tables, which hold even if a check of the input is missing.
import { Database } from "bun:sqlite";
import { afterAll, beforeAll, expect, test } from "bun:test";
import { newUser, orderFields } from "../contract/open.ts";
import { makeDirectory } from "../support/directory.ts";
import { openDatabase } from "./open-database.ts";

const directory = makeDirectory();
const path = directory.at("a.db");
let db: Database;

beforeAll(async () => {
  const store = await openDatabase(path);
  const { id } = await newUser(store, { email: "taken@example.com", reference: "taken" });
  await store.orders.create({ ...orderFields(id), reference: "taken" }, null);
  await store.tokens.create({
    hash: "0".repeat(64),
    name: "taken",
    scope: "write",
    expires_at: null,
  });
  await store.close();
  db = new Database(path);
  db.run("pragma foreign_keys = on");
});
afterAll(() => {
  db.close();
  directory[Symbol.dispose]();
});

const time = "'2026-11-20T18:57:03.120Z'";
/** Times that JSON could not contain as they are, or that do not sort. */
const badTimes = ["null", "'t'", `'2026-11-20T18:57:03.120"'`, "'2026-11-20T18:57:03Z'"];
const record = { metadata: "'{}'", version: "1", created_at: time, updated_at: time };
const rows: Record<string, Record<string, string>> = {
  users: {
    email: "'a@b.cd'",
    email_key: "'a@b.cd'",
    reference: "null",
    name: "null",
    ...record,
  },
  orders: {
    user_id: "1",
    currency: "'EUR'",
    reference: "null",
    items: "'[]'",
    total: "9007199254740991",
    refunded: "9007199254740991",
    status: "'pending'",
    ...record,
  },
  tokens: {
    hash: `'${"1".repeat(64)}'`,
    name: "'a'",
    scope: "'read'",
    created_at: time,
    expires_at: "null",
    last_used_at: "null",
    revoked_at: "null",
  },
  idempotency_keys: {
    owner: "'a'",
    key: "'a'",
    fingerprint: "'a'",
    record: "'{}'",
    created_at: time,
  },
  buckets: { list: "'a'", level: "0", bucket: "0", ids: "0" },
};

function attempt(work: () => void): void {
  db.run("begin");
  try {
    work();
  } finally {
    if (db.inTransaction) db.run("rollback");
  }
}

function insert(table: string, row: Record<string, string>): void {
  const columns = Object.keys(row).join(", ");
  db.run(`insert into ${table} (${columns}) values (${Object.values(row).join(", ")})`);
}

const rejected: [string, string, string[]][] = [
  ["users", "email", ["null", "''", "'ab'", `'${"a".repeat(255)}'`, "x'00'"]],
  ["users", "email_key", ["null", "'taken@example.com'"]],
  ["users", "reference", ["''", `'${"a".repeat(256)}'`, "'taken'"]],
  ["users", "name", ["''", `'${"a".repeat(201)}'`]],
  ["users", "metadata", ["null", "'[]'", "'null'", "'{'", "''", "'{a:1}'"]],
  ["users", "version", ["null", "0", "'a'", "1.5"]],
  ["users", "created_at", badTimes],
  ["users", "updated_at", badTimes],
  ["orders", "user_id", ["null", "2", "'a'", "1.5"]],
  ["orders", "currency", ["null", "'EU'", "'EURO'", "'eur'", `'E"R'`]],
  ["orders", "reference", ["''", `'${"a".repeat(256)}'`, "'taken'"]],
  ["orders", "items", ["null", "'{}'", "'['", "'null'", "'[1,]'"]],
  ["orders", "total", ["null", "-1", "9007199254740992", "0.5", "'a'"]],
  ["orders", "refunded", ["null", "-1", "9007199254740992", "0.5", "'a'"]],
  ["orders", "status", ["null", "'open'", "'Pending'", "''"]],
  ["orders", "metadata", ["null", "'[]'", "'{a:1}'"]],
  ["orders", "version", ["null", "0"]],
  ["orders", "created_at", badTimes],
  ["orders", "updated_at", badTimes],
  ["tokens", "hash", ["null", "'abc'", `'${"0".repeat(64)}'`]],
  ["tokens", "name", ["null", "''", "'taken'", `'${"a".repeat(101)}'`]],
  ["tokens", "scope", ["null", "''"]],
  ["idempotency_keys", "owner", ["null"]],
  ["idempotency_keys", "key", ["null", "''", `'${"a".repeat(256)}'`]],
  ["idempotency_keys", "fingerprint", ["null"]],
  ["idempotency_keys", "record", ["null", "'[]'", "'{'"]],
  ["buckets", "level", ["null", "-1", "4", "'a'"]],
  ["buckets", "bucket", ["null", "-1"]],
  ["buckets", "ids", ["null", "-1"]],
];

for (const [table, column, values] of rejected) {
  test(`${table} rejects a row only when its ${column} is out of bounds`, () => {
    attempt(() => insert(table, rows[table] ?? {}));
    for (const value of values) {
      const write = () => insert(table, { ...rows[table], [column]: value });
      expect(write, value.slice(0, 40)).toThrow(/constraint|cannot store|malformed/i);
    }
  });
}

test("users rejects deleting a row that has orders", () => {
  expect(() => db.run("delete from users where id = 1")).toThrow(/FOREIGN KEY/);
  expect(() => db.run("update users set id = 5 where id = 1")).toThrow(/FOREIGN KEY/);
});

test("orders rejects deleting a row", () => {
  expect(() => attempt(() => db.run("delete from orders"))).toThrow(/orders are never deleted/);
});
