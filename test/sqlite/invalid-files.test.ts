// Files that are not a valid user-api database: `openSqlite` rejects each with one line and changes nothing.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import {
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { SCHEMA_VERSION } from "../../src/sqlite/file/migrate.ts";
import { LARGE_TREE } from "../../src/sqlite/file/page-tree.ts";
import { expectRejection } from "../support/expect-error.ts";
import { makePath, openDatabase, query } from "./open-database.ts";

test.each<[string, (path: string) => void, string]>([
  ["is a directory", (path) => mkdirSync(path), "it is a directory"],
  ["is a named pipe", (path) => Bun.spawnSync(["mkfifo", path]), "it is not a regular file"],
  ["is too short", (path) => writeFileSync(path, "abc"), "the file is not a SQLite database"],
])(
  "openSqlite fails with the reason and changes nothing when the file %s",
  async (_what, make, why) => {
    const { directory, path } = makePath();
    make(path);
    const before = statSync(path).isFile() ? readFileSync(path) : null;
    for (const mode of ["serve", "write"] as const) {
      const opening = openDatabase(path, { mode });
      await expectRejection(opening, "operator", `Cannot open ${path}: ${why}`);
    }
    if (before !== null) expect(readFileSync(path)).toEqual(before);
    expect(readdirSync(directory.path)).toEqual(["a.db"]);
  },
);

test("page-tree knows every table and index that grows with the data", async () => {
  const { path } = makePath();
  await (await openDatabase(path)).close();
  const trees = query(
    path,
    `select coalesce(sql, name)
    from sqlite_schema
    where rootpage > 0
      and tbl_name in ('users', 'orders', 'buckets', 'idempotency_keys', 'changes')`,
  );
  expect(trees).toHaveLength(13);
  expect(trees.filter((tree) => !LARGE_TREE.test(`${tree}`))).toEqual([]);
});

test("openSqlite rejects a schema that refers to itself, unless a WAL replaces it, as after a crash", async () => {
  const { directory, path } = makePath();
  await (await openDatabase(path)).close();
  using db = new Database(path);
  // Writes the first page to the WAL.
  db.run(`pragma user_version = ${SCHEMA_VERSION}`);
  const bytes = readFileSync(path);
  // An interior page without cells, whose last child is itself.
  bytes.fill(0, 100, 112).writeUInt8(5, 100);
  bytes.writeUInt8(1, 111);
  const copy = directory.at("copy.db");
  writeFileSync(copy, bytes);
  await expectRejection(openDatabase(copy), "operator", `Cannot open ${copy}: the file is damaged`);
  copyFileSync(`${path}-wal`, `${copy}-wal`);
  await (await openDatabase(copy)).close();
});
