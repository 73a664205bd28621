// Which processes may have one file open: one server that writes, or several that only read, and programs such as
// Litestream.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { linkSync, renameSync, rmSync, symlinkSync } from "node:fs";
import type { Store, StoreOptions } from "../../src/domain/store.ts";
import { takeServerLock } from "../../src/sqlite/file/server-lock.ts";
import { newUser } from "../contract/open.ts";
import { expectRejection } from "../support/expect-error.ts";
import { makePath, openDatabase, skipLockWaits } from "./open-database.ts";

skipLockWaits();

/** A database with a user, in WAL mode without a lock file, as Litestream restores it. */
async function restored() {
  const { directory, path } = makePath();
  const store = await openDatabase(path);
  await newUser(store);
  await store.close();
  rmSync(`${path}-serving`);
  return { path, directory };
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

test("a server starts while another program reads the database, but not while one writes, or reads without a log", async () => {
  const { path } = await restored();
  {
    using _reader = otherProgram(path);
    await using store = await openDatabase(path);
    await newUser(store);
    await expectRefused(path, IN_USE);
  }
  for (const begin of ["begin immediate", "pragma journal_mode = delete; begin"]) {
    using _other = otherProgram(path, begin);
    await expectRefused(path, "the database is in use by another process");
  }
  await (await openDatabase(path)).close();
});

test("a second server is rejected, also when it uses a link, until the first one is closed", async () => {
  const { path, directory } = await restored();
  const store = await openDatabase(path);
  symlinkSync(path, directory.at("symbolic.db"));
  for (const other of [path, directory.at("symbolic.db"), `${directory.path}/./a.db`])
    await expectRefused(other, IN_USE);
  const link = directory.at("link.db");
  linkSync(path, link);
  const why =
    "the file has 2 names (hard links), and another process has it open, perhaps a server under another name: stop that process";
  await expectRefused(link, why);
  await newUser(store);
  await store.close();
  await (await openDatabase(link)).close();
});

test("writes fail while the lock file is elsewhere, and until the restart when it was deleted", async () => {
  const database = await restored();
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
    using other = takeServerLock(database.path, "exclusive", 0);
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

test("several servers read one file while it is in its place, and a server that writes never runs next to one that reads", async () => {
  const { path } = await restored();
  const one = await openDatabase(path, readOnly);
  const other = await openDatabase(path, readOnly);
  await expectRefused(path, IN_USE);
  renameSync(path, `${path}-away`);
  await expectRejection(one.checkUsable(), "unavailable");
  renameSync(`${path}-away`, path);
  await one.checkUsable();
  const command = await openDatabase(path, { mode: "write", create: false });
  await newUser(command);
  await command.close();
  expect([await totalOf(one), await totalOf(other)]).toEqual([2, 2]);
  await one.close();
  await expectRefused(path, IN_USE);
  await other.close();
  await using _writing = await openDatabase(path);
  await expectRefused(path, IN_USE, readOnly);
});

test("reading does not wait for the write lock, neither in a server nor in a command", async () => {
  const database = await restored();
  using writer = new Database(database.path);
  writer.run("begin immediate");
  writer.run("update users set name = 'Ann'");
  for (const mode of ["serve-read-only", "read"] as const) {
    await using store = await openDatabase(database.path, { mode, create: false });
    expect(await totalOf(store)).toBe(1);
  }
});
