// The JSON that both databases render of columns of all types, which users and orders have in part.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { Type } from "@sinclair/typebox";
import { Id, Nullable, OneOf, Text, Time } from "../../src/base/schema.ts";
import { columnsOf } from "../../src/domain/columns.ts";
import { recordJson as postgresJson } from "../../src/postgres/tables/columns.ts";
import { recordJson as sqliteJson } from "../../src/sqlite/tables/columns.ts";
import { cluster, makeHarness } from "../postgres/postgres-harness.ts";

const fields = {
  integer: Id,
  word: OneOf(["a", "b"]),
  time: Time,
  text: Text({ maxLength: 9 }),
  object: Type.Object({}),
  list: Type.Array(Id),
};

/** @returns the same members, `_or_null` */
function renamed(members: object): [string, any][] {
  return Object.entries(members).map(([name, value]) => [`${name}_or_null`, value]);
}

const nullableFields = renamed(fields).map(([name, schema]) => [name, Nullable(schema)]);
const record = Type.Object({ ...fields, ...Object.fromEntries(nullableFields) });

const time = "2026-11-20T18:57:03.120Z";
const text = '"\\\n';
const values = { integer: 7, word: "a", time, text, object: { a: 1 }, list: [1, 2] };
const rows = [
  { ...values, ...Object.fromEntries(renamed(values)) },
  { ...values, ...Object.fromEntries(renamed(values).map(([name]) => [name, null])) },
];

/** @returns a query for a row as it is stored */
function selectStored(row: Readonly<Record<string, unknown>>): string {
  const cells = Object.entries(row).map(([name, value]) => {
    if (typeof value === "number") return `${value} as ${name}`;
    const stored = typeof value === "object" && value !== null ? JSON.stringify(value) : value;
    const literal = stored === null ? "null" : `'${stored}'`;
    return name.startsWith("integer")
      ? `${literal} as ${name}`
      : `cast(${literal} as text) as ${name}`;
  });
  return `select ${cells.join(", ")}`;
}

test.each([
  ["is optional", Type.Optional(Id)],
  ["is optional and can be null", Type.Optional(Nullable(Id))],
  ["has a type without a column", Type.Boolean()],
])("columnsOf fails when a field %s", (_what, schema) => {
  expect(() => columnsOf(Type.Object({ a: schema }))).toThrow(/\ba\b/);
});

test.each(rows)("SQLite renders a row as JSON.stringify does", (row) => {
  using db = new Database(":memory:");
  const query = `select ${sqliteJson(db, record)} as json from (${selectStored(row)})`;
  expect(db.prepare(query).get()).toEqual({ json: JSON.stringify(row) });
});

test.if(cluster !== null).each(rows)(
  "PostgreSQL renders a row as JSON.stringify does",
  async (row) => {
    await using world = await makeHarness();
    const query = `select ${postgresJson(record)} as json from (${selectStored(row)}) as stored`;
    expect(await world.run<{ json: string }>(query)).toEqual([{ json: JSON.stringify(row) }]);
  },
);
