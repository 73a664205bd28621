// The name of the feed stays as long as no change can have been lost, and only then. That it stays when a server
// starts again or is killed, and when a command writes, is in the histories of test/model and test/http/database.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { copyFileSync, cpSync, mkdirSync, renameSync, utimesSync } from "node:fs";
import { copyRows } from "../../src/domain/copy.ts";
import { lockPath } from "../../src/sqlite/file/server-lock.ts";
import { continueFeed } from "../../src/sqlite/tables/feed.ts";
import { withSqliteCopyTarget } from "../../src/sqlite/whole/copy.ts";
import { restoreSqlite } from "../../src/sqlite/whole/restore.ts";
import { newUser } from "../contract/open.ts";
import { makeDirectory } from "../support/directory.ts";
import { backUp, now } from "./make-backup.ts";
import { makePath, openDatabase } from "./open-database.ts";

const newest = { limit: 1, offset: 0 };

/** Opens the database as a server does, and makes a change. @returns the name of the feed */
async function serve(path: string): Promise<string> {
  await using store = await openDatabase(path, { now });
  const { feed } = await store.changes.list(newest);
  await newUser(store);
  return feed;
}

async function makeServed() {
  const { directory, path } = makePath();
  return { directory, path, feed: await serve(path) };
}

test("a restored database and a copy have the changes, and new feeds", async () => {
  const { directory, path, feed } = await makeServed();
  const [from, copy] = [directory.at("backup.db"), directory.at("copy.db")];
  await backUp(path, from);
  const store = await openDatabase(path);
  await store.withCopySource((source) =>
    withSqliteCopyTarget(copy, (target) => copyRows(source, target, new AbortController().signal)),
  );
  await newUser(store);
  await store.close();
  await restoreSqlite({ from, databaseUrl: path, now });
  for (const databaseUrl of [path, copy]) {
    await using other = await openDatabase(databaseUrl);
    const page = await other.changes.list(newest);
    expect(page).toMatchObject({ total: 1, first: 1, last: 1 });
    expect(page.feed).not.toBe(feed);
    await newUser(other);
    expect((await other.changes.list(newest)).last).toBe(2);
    expect(await other.check()).toEqual([]);
  }
});

test.each([
  ["is written over it", copyFileSync],
  ["is moved to its place", renameSync],
] as const)("a new feed starts when an older copy of the file %s", async (_how, replace) => {
  const { directory, path, feed } = await makeServed();
  const older = directory.at("older.db");
  copyFileSync(path, older);
  expect(await serve(path)).toBe(feed);
  replace(older, path);
  const started = await serve(path);
  expect(started).not.toBe(feed);
  // It is not the same again, and it continues.
  expect(await serve(path)).toBe(started);
});

test("a new feed starts when an older copy is written over the file, and is as old as the last mark of the server", async () => {
  const { directory, path, feed } = await makeServed();
  const server = await openDatabase(path, { now });
  await newUser(server);
  const older = directory.at("older.db");
  using db = new Database(path);
  db.run("vacuum into ?", [older]);
  // As after ten minutes.
  await continueFeed(db, path, async (work) => work());
  expect((await server.changes.list(newest)).feed).toBe(feed);
  await newUser(server);
  await server.close();
  // Without it, the statements above keep the WAL, which does not belong to the copy.
  db.close(true);
  copyFileSync(older, path);
  expect(await serve(path)).not.toBe(feed);
});

test("a new feed starts in a copy of the directory, unless it is said to lack no change", async () => {
  using directory = makeDirectory();
  mkdirSync(directory.at("one"));
  const feed = await serve(directory.at("one/a.db"));
  cpSync(directory.at("one"), directory.at("two"), { recursive: true, preserveTimestamps: true });
  cpSync(directory.at("one"), directory.at("complete"), { recursive: true });
  const path = directory.at("complete/a.db");
  using db = new Database(path);
  const failing = continueFeed(db, path, () => Promise.reject(new Error("full")), true);
  await expect(failing).rejects.toThrow("full");
  await continueFeed(db, path, async (work) => work(), true);
  expect(await serve(path)).toBe(feed);
  expect(await serve(directory.at("two/a.db"))).not.toBe(feed);
  expect(await serve(directory.at("one/a.db"))).toBe(feed);
});

test("the feed continues when a mark cannot be recorded, or its write is rejected, unless it needs a new name", async () => {
  const { path, feed } = await makeServed();
  const failure = new Error("the disk is full");
  const fail = () => Promise.reject(failure);
  const committed = (work: () => void) => {
    work();
    // As when the archive does not have it.
    return fail();
  };
  for (const write of [fail, committed]) {
    const db = new Database(path);
    await continueFeed(db, path, write);
    db.close();
    expect(await serve(path)).toBe(feed);
  }
  // No server has recorded this time.
  utimesSync(lockPath(path), 1, 1);
  {
    using db = new Database(path);
    await expect(continueFeed(db, path, fail)).rejects.toBe(failure);
  }
  expect(await serve(path)).not.toBe(feed);
});
