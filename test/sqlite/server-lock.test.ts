// Which processes may have one file open: one server that writes, or several that only read, and programs such as
// Litestream.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { linkSync, renameSync, rmSync, symlinkSync } from "node:fs";
import type { Store, StoreOptions } from "../../src/domain/store.ts";
import { takeServerLock } from "../../src/sqlite/file/server-lock.ts";
import { newUser } from "../contract/open.ts";
import { makeDirectory } from "../support/directory.ts";
import { expectRejection } from "../support/expect-error.ts";
import { openDatabase, skipLockWaits } from "./open-database.ts";

skipLockWaits();

/** A database with a user, in WAL mode without a lock file, as Litestream restores it. */
async function restored() {
  const directory = makeDirectory();
  const path = directory.at("a.db");
  const store = await openDatabase(path);
  await newUser(store);
  await store.close();
  rmSync(`${path}-serving`);
  return { path, directory, [Symbol.dispose]: () => directory[Symbol.dispose]() };
}

const readOnly = { mode: "serve-read-only", create: false } as const;

/** @param path of the database, or a link to it. @param more options, by default those of a server that writes */
function expectRefused(path: string, why: string, more: Partial<StoreOptions> = {}) {
  return expectRejection(openDatabase(path, more), "operator", `Cannot open ${path}: ${why}`);
}

const IN_USE = "the database is in use by another server";

async function totalOf({ users }: Store): Promise<number> {
  return (await users.list({ limit: 10, offset: 0 })).total;
}

/** A program that has read the database and keeps it open. @param begin its transaction */
function otherProgram(path: string, begin = "begin"): Database {
  const db = new Database(path);
  db.run(begin);
  db.prepare("select * from users").all();
  return db;
}

test("a server starts without a lock file when another program reads the database", async () => {
  using database = await restored();
  using _reader = otherProgram(database.path);
  await using store = await openDatabase(database.path);
  await newUser(store);
  await expectRefused(database.path, IN_USE);
});

test("a server does not start when another program is writing", async () => {
  using database = await restored();
  {
    using _writer = otherProgram(database.path, "begin immediate");
    await expectRefused(database.path, "the database is in use by another process");
  }
  await (await openDatabase(database.path)).close();
});

test("a server does not start when another process reads the database without a log", async () => {
  using database = await restored();
  using other = new Database(database.path);
  other.run("pragma journal_mode = delete");
  other.run("begin");
  other.prepare("select * from users").all();
  await expectRefused(database.path, "the database is in use by another process");
});

test("a second server is rejected, also when it uses a link, until the first one is closed", async () => {
  using database = await restored();
  const { at, path: directory } = database.directory;
  const store = await openDatabase(database.path);
  symlinkSync(database.path, at("symbolic.db"));
  for (const other of [database.path, at("symbolic.db"), `${directory}/./a.db`])
    await expectRefused(other, IN_USE);
  const link = at("link.db");
  linkSync(database.path, link);
  const why =
    "the file has 2 names (hard links), and another process has it open, perhaps a server under another name: stop that process";
  await expectRefused(link, why);
  await newUser(store);
  await store.close();
  await (await openDatabase(link)).close();
});

test("writes fail while the lock file is elsewhere, and until the restart when it was deleted", async () => {
  using database = await restored();
  const path = `${database.path}-serving`;
  const problems: (string | null)[] = [];
  const onStorageProblem = (problem: string | null) => problems.push(problem);
  const store = await openDatabase(database.path, { onStorageProblem });
  renameSync(path, `${path}-away`);
  await expectRejection(newUser(store), "unavailable");
  renameSync(`${path}-away`, path);
  await newUser(store);
  rmSync(path);
  {
    using other = takeServerLock(database.path, 0);
    expect(other).not.toBeNull();
    await expectRejection(store.checkUsable(), "unavailable");
  }
  // The other server may have migrated the schema.
  await expectRejection(newUser(store), "unavailable");
  const moved = `${path} has been moved or deleted`;
  expect(problems).toEqual([moved, null, `${path} has been replaced by another file`]);
  await store.close();
  await (await openDatabase(database.path)).close();
});

test("several servers read one file, and none starts beside one that writes, or the other way round", async () => {
  using database = await restored();
  const one = await openDatabase(database.path, readOnly);
  const other = await openDatabase(database.path, readOnly);
  await expectRefused(database.path, IN_USE);
  expect([await totalOf(one), await totalOf(other)]).toEqual([1, 1]);
  await one.close();
  await expectRefused(database.path, IN_USE);
  await other.close();
  await using _writing = await openDatabase(database.path);
  await expectRefused(database.path, IN_USE, readOnly);
});

test("reading does not wait for the write lock, neither in a server nor in a command", async () => {
  using database = await restored();
  using writer = new Database(database.path);
  writer.run("begin immediate");
  writer.run("update users set name = 'Ann'");
  for (const mode of ["serve-read-only", "read"] as const) {
    await using store = await openDatabase(database.path, { mode, create: false });
    expect(await totalOf(store)).toBe(1);
  }
});

test("a read-only server sees what a command writes, and is not usable while its file is elsewhere", async () => {
  using database = await restored();
  await using store = await openDatabase(database.path, readOnly);
  renameSync(database.path, `${database.path}-away`);
  await expectRejection(store.checkUsable(), "unavailable");
  renameSync(`${database.path}-away`, database.path);
  await store.checkUsable();
  await using command = await openDatabase(database.path, { mode: "write", create: false });
  await newUser(command);
  expect(await totalOf(store)).toBe(2);
});
