import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { findVersion, migrate, migrations, SCHEMA_VERSION } from "../../src/sqlite/file/migrate.ts";
import { time } from "../contract/open.ts";
import { expectThrown } from "../support/expect-error.ts";
import { makePath } from "./open-database.ts";

const APPLICATION_ID = 0x75617069;

const value = (db: Database, sql: string) => db.prepare(sql).values()[0]?.[0];

function tables(db: Database): unknown[] {
  const sql = "select name from sqlite_schema where type = 'table' and name not like 'sqlite_%'";
  return db.prepare(sql).values().flat().sort();
}

const ours = "buckets changes feed idempotency_keys order_runs orders tokens users".split(" ");
const insertUser = `
  insert into users (email, email_key, metadata, version, created_at, updated_at)
  values ('a@b.cd', 'a@b.cd', '{}', 1, '${time}', '${time}')
`;

test("migrate creates strict tables and sets the application id in a new file, and then runs only what is new", () => {
  using db = new Database(":memory:");
  expect([findVersion(db), migrate(db), findVersion(db)]).toEqual([0, 0, SCHEMA_VERSION]);
  expect(value(db, "pragma application_id")).toBe(APPLICATION_ID);
  expect(value(db, "pragma user_version")).toBe(SCHEMA_VERSION);
  const sql = "select name from pragma_table_list where schema = 'main' and strict";
  expect(db.prepare(sql).values().flat().sort()).toEqual(ours);
  db.run(insertUser);
  const before = value(db, "pragma schema_version");
  expect(migrate(db)).toBe(SCHEMA_VERSION);
  expect(value(db, "pragma schema_version")).toBe(before as number);
  const newer = [...migrations, "create table news (n integer) strict"];
  expect(migrate(db, newer)).toBe(SCHEMA_VERSION);
  expect(tables(db)).toEqual([...ours, "news"].sort());
  expect(findVersion(db, newer)).toBe(newer.length);
  expect(value(db, "select count(*) from users")).toBe(1);
});

test("migrate locks out other writers while it reads the version and migrates", () => {
  const { path } = makePath();
  using db = new Database(path, { create: true });
  using other = new Database(path);
  let asked = 0;
  const known = Object.assign([...migrations], {
    slice(...part: number[]) {
      asked += 1;
      expect(() => other.run("begin immediate")).toThrow("database is locked");
      return migrations.slice(...part);
    },
  });
  migrate(db, known);
  expect(asked).toBeGreaterThan(0);
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

const ofLitestream = `
  CREATE TABLE IF NOT EXISTS _litestream_lock (id INTEGER);
  CREATE TABLE IF NOT EXISTS _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER);
`;

test("migrate and findVersion accept tables that SQLite and Litestream add", () => {
  using db = new Database(":memory:");
  db.run(ofLitestream);
  expect(migrate(db)).toBe(0);
  db.run(`${insertUser}; analyze`);
  expect(tables(db)).toHaveLength(ours.length + 2);
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

test.each([
  ["a table is missing", "drop table feed", '"feed" is missing'],
  ["a trigger is missing", "drop trigger orders_deleted", '"orders_deleted" is missing'],
  [
    "there is a trigger on a table of Litestream",
    `${ofLitestream} create trigger t after insert on _litestream_seq begin select 1; end`,
    '"t" differs, or does not belong to it',
  ],
  [
    "a table has the name of one of Litestream",
    "create table _litestream_seq (id integer primary key, seq integer as (1))",
    '"_litestream_seq" differs, or does not belong to it',
  ],
  [
    "a column is generated",
    "alter table users add column more text as (hex(name))",
    '"users" differs, or does not belong to it',
  ],
  [
    "a name has control characters",
    `create view "a\u001b[2J${"b".repeat(1000)}" as select 1`,
    `"a\\u001b[2J${"b".repeat(95)}" differs, or does not belong to it`,
  ],
])("findVersion rejects the schema when %s", (_when, sql, why) => {
  using db = new Database(":memory:");
  migrate(db);
  db.run(sql);
  const message = `the schema is not that of version ${SCHEMA_VERSION}: ${why}`;
  expectThrown(() => findVersion(db), "operator", message);
  expectThrown(() => migrate(db), "operator", message);
});

test("findVersion rejects the schema when the file has another constraint", () => {
  using intact = new Database(":memory:");
  migrate(intact);
  // SQLite itself does not change its schema like this.
  const bytes = intact.serialize().toString("latin1").replaceAll("version >= 1", "version >= 0");
  using db = Database.deserialize(Buffer.from(bytes, "latin1"));
  expectThrown(() => findVersion(db), "operator", /: "users" differs, or does not belong to it$/);
});
