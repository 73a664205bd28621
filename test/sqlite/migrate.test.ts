import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { findVersion, migrate, migrations, SCHEMA_VERSION } from "../../src/sqlite/migrate.ts";
import { makeDirectory } from "../directory.ts";
import { expectThrown } from "../expect-error.ts";

const APPLICATION_ID = 0x75617069;

function value(db: Database, sql: string): unknown {
  return db.prepare(sql).values()[0]?.[0];
}

function tables(db: Database): unknown[] {
  const sql = "select name from sqlite_schema where type = 'table' and name not like 'sqlite_%'";
  return db.prepare(sql).values().flat().sort();
}

const ofFirstMigration = [
  "buckets",
  "idempotency_keys",
  "imported_orders",
  "orders",
  "tokens",
  "users",
];
const ours = [...ofFirstMigration, "changes", "feed"].sort();

test("migrate creates the tables and sets the application id in a new file", () => {
  using db = new Database(":memory:");
  expect(findVersion(db)).toBe(0);
  expect(migrate(db)).toBe(0);
  expect(tables(db)).toEqual(ours);
  expect(value(db, "pragma application_id")).toBe(APPLICATION_ID);
  expect(value(db, "pragma user_version")).toBe(SCHEMA_VERSION);
  expect(findVersion(db)).toBe(SCHEMA_VERSION);
});

test("migrate creates only strict tables", () => {
  using db = new Database(":memory:");
  migrate(db);
  const sql = "select name from pragma_table_list where schema = 'main' and strict";
  expect(db.prepare(sql).values().flat().sort()).toEqual(ours);
});

test("migrate changes nothing when all migrations have run", () => {
  using db = new Database(":memory:");
  migrate(db);
  const before = value(db, "pragma schema_version");
  db.run("insert into users values (1, 'a@b.cd', 'a@b.cd', null, '{}', 1, 't', 't')");
  expect(migrate(db)).toBe(SCHEMA_VERSION);
  expect(value(db, "pragma schema_version")).toBe(before as number);
  expect(value(db, "select count(*) from users")).toBe(1);
});

test("migrate runs only the migrations that are new when the schema is older", () => {
  using db = new Database(":memory:");
  migrate(db);
  db.run("insert into users values (1, 'a@b.cd', 'a@b.cd', null, '{}', 1, 't', 't')");
  const newer = [...migrations, "create table news (n integer) strict"];
  expect(migrate(db, newer)).toBe(SCHEMA_VERSION);
  expect(tables(db)).toEqual([...ours, "news"].sort());
  expect(findVersion(db, newer)).toBe(newer.length);
  expect(value(db, "select count(*) from users")).toBe(1);
});

test("migrate runs once when two connections call it", () => {
  using directory = makeDirectory();
  const path = directory.at("a.db");
  using left = new Database(path, { create: true });
  using right = new Database(path);
  expect([findVersion(left), findVersion(right)]).toEqual([0, 0]);
  migrate(left);
  // It read the version before the other was done, and must read it again inside its transaction.
  migrate(right);
  expect(tables(right)).toEqual(ours);
});

test("migrate locks out other writers while it reads the version and migrates", () => {
  using directory = makeDirectory();
  const path = directory.at("a.db");
  using db = new Database(path, { create: true });
  using other = new Database(path);
  let asked = 0;
  const known = Object.assign([...migrations], {
    slice(at: number) {
      asked += 1;
      expect(() => other.run("begin immediate")).toThrow("database is locked");
      return migrations.slice(at);
    },
  });
  migrate(db, known);
  expect(asked).toBe(1);
  expect(tables(other)).toEqual(ours);
});

test("migrate changes nothing when a statement fails", () => {
  using db = new Database(":memory:");
  const broken = [...migrations, "create table news (n); create table tokens (n)"];
  expect(() => migrate(db, broken)).toThrow(/tokens already exists/);
  expect(tables(db)).toEqual([]);
  expect(value(db, "pragma user_version")).toBe(0);
  expect(db.inTransaction).toBe(false);
});

test("migrate creates the schema when the database has only tables of Litestream", () => {
  using db = new Database(":memory:");
  db.run("create table _litestream_seq (id integer primary key, seq integer)");
  db.run("create table _litestream_lock (id integer)");
  expect(migrate(db)).toBe(0);
  expect(findVersion(db)).toBe(SCHEMA_VERSION);
});

test("findVersion rejects a database when it belongs to another program", () => {
  for (const sql of [
    "create table users (id integer)",
    "create view v as select 1",
    "create table xlitestream_seq (id integer)",
    "pragma user_version = 1",
  ]) {
    using db = new Database(":memory:");
    db.run(sql);
    expectThrown(() => findVersion(db), "operator", "the database belongs to another application");
    expectThrown(() => migrate(db), "operator");
    expect(value(db, "pragma application_id")).toBe(0);
  }
});

test("findVersion rejects a user-api database when tables are missing", () => {
  using empty = new Database(":memory:");
  empty.run(`pragma application_id = ${APPLICATION_ID}`);
  const message = (names: string) => `the user-api database lacks these tables: ${names}`;
  for (const version of [0, 1, SCHEMA_VERSION]) {
    empty.run(`pragma user_version = ${version}`);
    expectThrown(() => findVersion(empty), "operator", message(ofFirstMigration.join(", ")));
    expectThrown(() => migrate(empty), "operator");
    expect(tables(empty)).toEqual([]);
  }
  using partial = new Database(":memory:");
  migrate(partial);
  partial.run("drop table imported_orders; drop table tokens; create table more (n)");
  expectThrown(() => findVersion(partial), "operator", message("imported_orders, tokens"));
});
