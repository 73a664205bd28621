// A server that only reads a SQLite file: which others may use the file, and what it refuses.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { renameSync } from "node:fs";
import type { Store } from "../../src/domain/store.ts";
import { newUser } from "../contract/open.ts";
import { makeDirectory } from "../support/directory.ts";
import { expectRejection } from "../support/expect-error.ts";
import { openDatabase, skipLockWaits } from "./open-database.ts";

skipLockWaits();

const readOnly = { mode: "serve-read-only", create: false } as const;
const page = { limit: 10, offset: 0 };

async function filled() {
  const directory = makeDirectory();
  const path = directory.at("a.db");
  const store = await openDatabase(path);
  await newUser(store);
  await store.close();
  return { path, [Symbol.dispose]: () => directory[Symbol.dispose]() };
}

async function totalOf({ users }: Store): Promise<number> {
  return (await users.list(page)).total;
}

test("several servers read one file, and none starts beside one that writes, or the other way round", async () => {
  using database = await filled();
  const [one, other] = [
    await openDatabase(database.path, readOnly),
    await openDatabase(database.path, readOnly),
  ];
  const message = `Cannot open ${database.path}: the database is in use by another server`;
  await expectRejection(openDatabase(database.path), "operator", message);
  expect([await totalOf(one), await totalOf(other)]).toEqual([1, 1]);
  await one.close();
  await expectRejection(openDatabase(database.path), "operator", message);
  await other.close();
  await using _writing = await openDatabase(database.path);
  await expectRejection(openDatabase(database.path, readOnly), "operator", message);
});

test("reading does not wait for the write lock, neither in a server nor in a command", async () => {
  using database = await filled();
  using writer = new Database(database.path);
  writer.run("begin immediate");
  writer.run("update users set name = 'Ann'");
  for (const mode of ["serve-read-only", "read"] as const) {
    await using store = await openDatabase(database.path, { mode, create: false });
    expect(await totalOf(store)).toBe(1);
  }
});

test("a read-only server sees what a command writes, and is not usable while its file is elsewhere", async () => {
  using database = await filled();
  await using store = await openDatabase(database.path, readOnly);
  renameSync(database.path, `${database.path}-away`);
  await expectRejection(store.checkUsable(), "unavailable");
  renameSync(`${database.path}-away`, database.path);
  await store.checkUsable();
  await using command = await openDatabase(database.path, { mode: "write", create: false });
  await newUser(command);
  expect(await totalOf(store)).toBe(2);
});
