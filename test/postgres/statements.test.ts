/**
 * SQL that Citus rejects, searched for in every statement but those of batches, since both layouts use the others.
 * @see https://docs.citusdata.com/en/stable/develop/reference_workarounds.html
 */
import { expect, test } from "bun:test";

const directory = `${import.meta.dir}/../../src/postgres`;

/** @returns the SQL statements in the source; all are in lower case */
async function readStatements(): Promise<{ file: string; sql: string }[]> {
  const statements: { file: string; sql: string }[] = [];
  for (const file of [...new Bun.Glob("*.ts").scanSync(directory)].sort()) {
    const text = await Bun.file(`${directory}/${file}`).text();
    const literals = text.matchAll(/`([^`]*)`|"((?:select|insert|update|delete|lock) [^"]*)"/g);
    for (const [, template, line] of literals) {
      const sql = (template ?? line ?? "").trim();
      if (/^(select|insert|update|delete|with|lock|set|copy)\b/.test(sql))
        statements.push({ file, sql });
    }
  }
  return statements;
}

const all_statements = await readStatements();
/** A batch has its input as JSON. Only the plain layout has batches. */
const statements = all_statements.filter(({ sql }) => !sql.includes("json_to_recordset("));
const changes = statements.filter(({ sql }) => /^(insert|update|delete)\b/.test(sql));

/** The column that a distributed table is distributed by. */
const shard_keys = { orders: "user_id", imported_orders: "import_key", idempotency_keys: "key" };

function tableOf(sql: string): string {
  return /^(?:insert into|update|delete from) (\w+)/.exec(sql)?.[1] ?? "";
}

const refused: [string, RegExp][] = [
  ["a lock on rows", /\bfor (no key )?(update|share|key share)\b/],
  ["a data-modifying subquery", /\b(as|,)\s*(not )?(materialized )?\(\s*(insert|update|delete)\b/],
  ["a recursive subquery", /\bwith recursive\b/],
];

const refused_in_changes: [string, RegExp][] = [
  ["a subquery", /\(\s*(select|with)\b/],
  ["`insert … select`", /^insert[^;]*\bselect\b/],
  ["another table", /^(update[^;]*\bfrom\b|delete[^;]*\busing\b)/],
  [
    "a function that is not immutable",
    /\b(now|random|nextval|clock_timestamp|current_\w+|gen_random_uuid)\b/,
  ],
  ["`case` or `coalesce`", /\b(case|coalesce)\b/],
];

test("`readStatements` finds changes of every table", () => {
  expect(statements.length).toBeGreaterThan(40);
  const tables = new Set(changes.map(({ sql }) => tableOf(sql)));
  for (const table of ["users", "orders", "tokens", "idempotency_keys"]) {
    expect([table, tables.has(table)]).toEqual([table, true]);
  }
});

test("no statement interpolates values", () => {
  const names =
    "columns|counts|filter|input_names|input_types|into|json|key|order|refused|table|total|type|values";
  const parts = new RegExp(`\\$\\{(?!(?:${names}|text_bytes\\[table\\]|[A-Z_]+)\\})`);
  expect(all_statements.filter(({ sql }) => parts.test(sql))).toEqual([]);
});

test.each(refused)("no statement has %s, which Citus rejects", (_what, pattern) => {
  expect(statements.filter(({ sql }) => pattern.test(sql))).toEqual([]);
});

test.each(refused_in_changes)(
  "no insert, update or delete has %s, which Citus rejects",
  (_what, pattern) => {
    expect(changes.filter(({ sql }) => pattern.test(sql))).toEqual([]);
  },
);

test.each(Object.entries(shard_keys))(
  "every insert, update and delete of `%s` names `%s`, and none changes it",
  (table, key) => {
    const found = changes.filter(({ sql }) => tableOf(sql) === table);
    for (const { file, sql } of found) {
      const [head = "", rest = ""] = sql.split(/\bwhere\b/);
      const named = sql.startsWith("insert") ? head : rest;
      expect([file, sql, new RegExp(`\\b${key}\\b`).test(named)]).toEqual([file, sql, true]);
      expect([sql, new RegExp(`\\bset\\b[^;]*\\b${key} =`).test(head)]).toEqual([sql, false]);
      const conflict = /on conflict(?: \(([^)]*)\))?/.exec(sql);
      if (conflict !== null)
        expect([sql, conflict[1]]).toEqual([sql, expect.stringContaining(key)]);
    }
  },
);

test("the Citus layout has no triggers, and each unique constraint includes the distribution column", async () => {
  const read = (name: string) => Bun.file(`${directory}/migrations/${name}`).text();
  const text = `${await read("0001_tables.sql")}${await read("0001_citus.sql")}`;
  const sql = text.replace(/--.*$/gm, "");
  expect(sql).not.toMatch(/\btrigger\b|\bidentity\b|\bdeferrable\b/);
  for (const [table, key] of Object.entries(shard_keys)) {
    expect(sql).toMatch(new RegExp(`create_distributed_table\\('${table}', '${key}'`));
    const [, body = ""] = new RegExp(`create table ${table} \\(([^;]*)\\);`).exec(sql) ?? [];
    const [, altered = ""] = new RegExp(`alter table ${table} add ([^;]*);`).exec(sql) ?? [];
    for (const [, columns, own] of `${body}\n${altered}`.matchAll(
      /(?:primary key|unique) \(([^)]*)\)|^ *(\w+)[^\n,]*\b(?:primary key|unique)\b/gm,
    )) {
      expect([table, (columns ?? own ?? "").split(/, */).includes(key)]).toEqual([table, true]);
    }
    for (const [, columns = ""] of sql.matchAll(
      new RegExp(`create unique index \\w+ on ${table} \\(([^)]*)\\)`, "g"),
    )) {
      expect(columns.split(/, */)).toContain(key);
    }
  }
  // Foreign keys can only refer to a table that every node has.
  expect(sql).toContain("create_reference_table('users')");
});
