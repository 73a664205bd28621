import { Database } from "bun:sqlite";
import { expect, spyOn, test } from "bun:test";
import * as fs from "node:fs";
import { requireSqlite } from "../../src/sqlite/file/connection.ts";
import { SCHEMA_VERSION } from "../../src/sqlite/file/migrate.ts";
import { LARGE_TREE } from "../../src/sqlite/file/page-tree.ts";
import { all, newUser, orderFields, outcomesOf, userFields } from "../contract/open.ts";
import { damagePage, PAGE_BYTES, rootPageOf } from "../support/damage.ts";
import { makeDirectory } from "../support/directory.ts";
import { expectRejection, expectThrown } from "../support/expect-error.ts";
import { fillDatabase } from "../support/fill.ts";
import { makePath, openDatabase, query } from "./open-database.ts";

test("openSqlite sets the pragmas that SQLite leaves off", async () => {
  const { path } = makePath();
  const spy = spyOn(Database.prototype, "run");
  await using _store = await openDatabase(path);
  const connections = spy.mock.contexts as Database[];
  spy.mockRestore();
  // The connection that the store keeps.
  const kept = connections.findLast(({ filename }) => filename === path);
  const names = "journal_mode synchronous fullfsync foreign_keys trusted_schema busy_timeout";
  const read = (name: string) => {
    using statement = kept?.prepare(`pragma ${name}`);
    return statement?.values()[0]?.[0];
  };
  // The writer waits, not SQLite, which would block the event loop.
  expect(names.split(" ").map(read)).toEqual(["wal", 2, 1, 1, 0, 0]);
});

test("requireSqlite rejects a version that the statements cannot run on", () => {
  const why = /^SQLite 3\.42\.9 is too old: .+ to SQLite 3\.43\.0 or newer$/;
  expectThrown(() => requireSqlite("3.42.9"), "operator", why);
  for (const version of ["3.43.0", "3.51.3", "4.0.0"]) requireSqlite(version);
});

for (const mode of ["serve", "write"] as const)
  test(`openSqlite creates the directories, and writes all tables to the file, not only to the log (mode: ${mode})`, async () => {
    using directory = makeDirectory();
    const path = directory.at("x/y/a.db");
    await using _store = await openDatabase(path, { mode });
    fs.copyFileSync(path, directory.at("copy.db"));
    expect(query(directory.at("copy.db"), "select count(*) from users")).toEqual([0]);
  });

for (const suffix of ["-serving", "-wal"])
  test(`openSqlite rejects a database that was emptied when its ${suffix} is there`, async () => {
    const { directory, path } = makePath();
    await (await openDatabase(path)).close();
    fs.rmSync(`${path}-serving`);
    fs.truncateSync(path);
    fs.symlinkSync(path, directory.at("link.db"));
    fs.writeFileSync(path + suffix, suffix === "-wal" ? "x" : "");
    const reason =
      "the file is empty but was a database: restore a backup, or delete all of its files to start with an empty database";
    for (const name of [path, directory.at("link.db")]) {
      for (const mode of ["serve", "write"] as const) {
        const opening = openDatabase(name, { mode });
        await expectRejection(opening, "operator", `Cannot open ${name}: ${reason}`);
      }
    }
    expect(fs.statSync(path).size).toBe(0);
    fs.rmSync(path + suffix);
    await (await openDatabase(path)).close();
  });

test("openSqlite releases the lock, and leaves no file open, when it fails", async () => {
  const { directory, path } = makePath();
  await (await openDatabase(path)).close();
  const intact = fs.readFileSync(path);
  damagePage(path, rootPageOf(path, "feed"));
  await expectRejection(openDatabase(path), "operator");
  if (process.platform === "linux") {
    const { stdout } = Bun.spawnSync(["ls", "-l", `/proc/${process.pid}/fd`]);
    expect(stdout.toString()).not.toContain(directory.path);
  }
  fs.writeFileSync(path, intact);
  await (await openDatabase(path)).close();
});

test("statistics returns the sizes of the files and the number of waiting writes", async () => {
  const { path } = makePath();
  await using store = await openDatabase(path);
  const written = Promise.all([newUser(store), newUser(store)]);
  const { pendingWrites } = await store.statistics();
  expect(pendingWrites).toBe(2);
  await written;
  const sizeOf = (name: string) => fs.statSync(name).size;
  expect(await store.statistics()).toEqual({
    pendingWrites: 0,
    databaseBytes: sizeOf(path),
    walBytes: sizeOf(`${path}-wal`),
    freeBytes: expect.any(Number),
    lastBackupS: null,
  });
  expect(sizeOf(path)).not.toBe(sizeOf(`${path}-wal`));
});

test("only what needs a damaged page is rejected, with the name of the table", async () => {
  const { path } = makePath();
  const fields = (at: number) => userFields({ metadata: { mark: `<${at}>`.padEnd(500, "-") } });
  const users = Array.from({ length: 200 }, (_, at) => fields(at + 1));
  const filled = await openDatabase(path);
  await filled.bulk.users.import(users);
  await filled.close();
  damagePage(path, Math.ceil(fs.readFileSync(path).indexOf("<150>") / PAGE_BYTES));
  await using store = await openDatabase(path);
  const damaged = [
    async () => store.users.get(150),
    async () => store.users.list({ limit: 20, offset: 140 }),
    async () => store.users.list({ ...all, email: users[149]?.email ?? "" }),
    async () => store.users.remove(150, null),
  ];
  for (const read of damaged) await expectRejection(read(), "damaged", /\busers\b/);
  await store.checkUsable();
  expect((await store.users.get(20))?.id).toBe(20);
  expect((await newUser(store)).id).toBe(201);
});

test("a create that fills a block of ids is rejected alone, once, when an order of the block is damaged", async () => {
  const { path } = makePath();
  await fillDatabase(path, 1, 4095);
  damagePage(path, Math.ceil(fs.readFileSync(path).indexOf("2026-3000") / PAGE_BYTES));
  await using store = await openDatabase(path);
  const place = () => store.orders.create(orderFields(1), null);
  const outcomes = await outcomesOf([place(), place(), place()]);
  expect(outcomes).toEqual(["damaged", "new", "new"]);
  expect((await place()).id).toBe(4098);
});

test.if(process.platform === "linux")(
  "check keeps the locks of SQLite on a database that is in use",
  async () => {
    const { path } = makePath();
    await using store = await openDatabase(path);
    await newUser(store);
    const own = new RegExp(`(?<=^\\d+: ).*:${fs.statSync(path).ino} .*`, "gm");
    const locks = async () => (await Bun.file("/proc/locks").text()).match(own);
    const before = await locks();
    expect(before).not.toBeNull();
    expect(await store.check()).toEqual([]);
    expect(await locks()).toEqual(before);
  },
);

// Files that are not a valid user-api database: `openSqlite` rejects each with one line and changes nothing.
for (const [what, make, why] of [
  ["is a directory", (path: string) => fs.mkdirSync(path), "it is a directory"],
  [
    "is a named pipe",
    (path: string) => Bun.spawnSync(["mkfifo", path]),
    "it is not a regular file",
  ],
  [
    "is too short",
    (path: string) => fs.writeFileSync(path, "abc"),
    "the file is not a SQLite database",
  ],
] as const)
  test(`openSqlite fails with the reason and changes nothing when the file ${what}`, async () => {
    const { directory, path } = makePath();
    make(path);
    const before = fs.statSync(path).isFile() ? fs.readFileSync(path) : null;
    for (const mode of ["serve", "write"] as const) {
      const opening = openDatabase(path, { mode });
      await expectRejection(opening, "operator", `Cannot open ${path}: ${why}`);
    }
    if (before !== null) expect(fs.readFileSync(path)).toEqual(before);
    expect(fs.readdirSync(directory.path)).toEqual(["a.db"]);
  });

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
  const bytes = fs.readFileSync(path);
  // An interior page without cells, whose last child is itself.
  bytes.fill(0, 100, 112).writeUInt8(5, 100);
  bytes.writeUInt8(1, 111);
  const copy = directory.at("copy.db");
  fs.writeFileSync(copy, bytes);
  await expectRejection(openDatabase(copy), "operator", `Cannot open ${copy}: the file is damaged`);
  fs.copyFileSync(`${path}-wal`, `${copy}-wal`);
  await (await openDatabase(copy)).close();
});
