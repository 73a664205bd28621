import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { AppError } from "../../src/error.ts";
import { migrate, migrations } from "../../src/sqlite/migrate.ts";
import { restoreSqlite } from "../../src/sqlite/restore.ts";
import type { Store } from "../../src/store.ts";
import { newUser, orderFields } from "../contract/open.ts";
import { damagePage, rootPageOf } from "../damage.ts";
import { makeDirectory, type TemporaryDirectory } from "../directory.ts";
import { expectRejection } from "../expect-error.ts";
import { openDatabase } from "./open-database.ts";

const never = new AbortController().signal;
const now = () => new Date("2026-11-20T18:57:03.120Z");

function open(databaseUrl: string, exclusive = false): Promise<Store> {
  return openDatabase(databaseUrl, { exclusive, now });
}

/** Creates a database with two users and an order. @returns its path */
async function makeDatabase(directory: TemporaryDirectory, name = "a.db"): Promise<string> {
  const path = directory.at(name);
  const store = await open(path);
  const { id } = await newUser(store);
  await newUser(store);
  await store.orders.place(orderFields(id), null);
  await store.close();
  return path;
}

async function backUp(path: string, to: string) {
  const store = await open(path);
  try {
    return await store.backUp(to, () => {}, never);
  } finally {
    await store.close();
  }
}

/** Creates such a database, and a backup of it. */
async function makeBackup(directory: TemporaryDirectory): Promise<{ path: string; copy: string }> {
  const path = await makeDatabase(directory);
  const copy = directory.at("copy.db");
  await backUp(path, copy);
  return { path, copy };
}

async function totalOf(path: string): Promise<number> {
  const store = await open(path);
  const { total } = await store.users.list({ limit: 1, offset: 0 });
  await store.close();
  return total;
}

function restore(from: string, databaseUrl: string) {
  return restoreSqlite({ from, databaseUrl, now });
}

test("backUp writes a complete copy while the database is in use", async () => {
  using directory = makeDirectory();
  const path = await makeDatabase(directory);
  chmodSync(path, 0o640);
  const copy = directory.at("copy.db");
  const server = await open(path, true);
  const parts: number[] = [];
  const modes: number[] = [];
  const onProgress = (part: number) => {
    parts.push(part);
    const draft = readdirSync(directory.path).find((name) => name.endsWith(".partial")) ?? "";
    modes.push(statSync(directory.at(draft)).mode & 0o777);
  };
  const contents = await server.backUp(copy, onProgress, never);
  expect(contents).toEqual({ users: 2, orders: 1, tokens: 0, bytes: statSync(copy).size });
  expect(parts.at(-1)).toBe(1);
  // An incomplete copy is readable only by its owner.
  expect(new Set(modes)).toEqual(new Set([0o600]));
  expect(statSync(copy).mode & 0o777).toBe(0o640);
  await server.close();
  expect(readdirSync(directory.path).sort()).toEqual(["a.db", "a.db-serving", "copy.db"]);
  expect(await totalOf(copy)).toBe(2);
});

test("backUp contains every write that was acknowledged before it started, while others write", async () => {
  using directory = makeDirectory();
  const path = await makeDatabase(directory);
  const server = await open(path, true);
  let acknowledged = 2;
  let writing = true;
  const writers = Array.from({ length: 8 }, async () => {
    while (writing) {
      await newUser(server);
      acknowledged += 1;
    }
  });
  for (let round = 0; round < 5; round += 1) {
    await Bun.sleep(20);
    const before = acknowledged;
    const { users } = await backUp(path, directory.at(`${round}.db`));
    expect(users).toBeGreaterThanOrEqual(before);
  }
  writing = false;
  await Promise.all(writers);
  await server.close();
});

test("backUp fails and leaves no file when the target exists or its directory does not", async () => {
  using directory = makeDirectory();
  const path = await makeDatabase(directory);
  const taken = directory.at("taken");
  writeFileSync(taken, "precious");
  expect((await expectRejection(backUp(path, taken), "operator")).message).toBe(
    `Cannot back up to ${taken}: the file already exists`,
  );
  expect(await Bun.file(taken).text()).toBe("precious");
  const nowhere = directory.at("no/where.db");
  expect((await expectRejection(backUp(path, nowhere), "operator")).message).toStartWith(
    "Cannot back up to",
  );
  expect(readdirSync(directory.path).filter((name) => name.includes("partial"))).toEqual([]);
});

test("backUp does not overwrite a file that appears during the backup", async () => {
  using directory = makeDirectory();
  const store = await open(await makeDatabase(directory));
  const copy = directory.at("copy.db");
  const backing = store.backUp(copy, () => writeFileSync(copy, "precious"), never);
  expect((await expectRejection(backing, "operator")).message).toBe(
    `Cannot back up to ${copy}: the file already exists`,
  );
  await store.close();
  expect(await Bun.file(copy).text()).toBe("precious");
  expect(readdirSync(directory.path).filter((name) => name.includes("partial"))).toEqual([]);
});

test("backUp fails with the reason when a page cannot be read", async () => {
  using directory = makeDirectory();
  const path = await makeDatabase(directory);
  damagePage(path, rootPageOf(path, "sqlite_autoindex_users_1"));
  const copy = directory.at("copy.db");
  expect((await expectRejection(backUp(path, copy), "operator")).message).toBe(
    `Cannot back up to ${copy}: database disk image is malformed`,
  );
  expect(readdirSync(directory.path).filter((name) => name.startsWith("copy"))).toEqual([]);
});

const isRoot = process.getuid?.() === 0;

test.if(isRoot)("backUp and restore keep the owner when root calls them", async () => {
  using directory = makeDirectory();
  const { path, copy } = await makeBackup(directory);
  chownSync(path, 4321, 1234);
  const ownerOf = (name: string) => [statSync(name).uid, statSync(name).gid];
  await backUp(path, directory.at("next.db"));
  expect(ownerOf(directory.at("next.db"))).toEqual([4321, 1234]);
  await restore(copy, path);
  expect(ownerOf(path)).toEqual([4321, 1234]);
});

test("backUp fails and leaves no file when the copy is inconsistent", async () => {
  using directory = makeDirectory();
  const path = await makeDatabase(directory);
  {
    using db = new Database(path);
    db.run("insert into buckets values ('users', 0, 0, 1)");
  }
  const copy = directory.at("copy.db");
  expect((await expectRejection(backUp(path, copy), "operator")).message).toBe(
    `Cannot back up to ${copy}: the total of users is wrong in bucket 0 of level 0`,
  );
  expect(readdirSync(directory.path).filter((name) => name.startsWith("copy"))).toEqual([]);
});

test("restore replaces the database with the backup, and keeps the previous one", async () => {
  using directory = makeDirectory();
  const { path, copy } = await makeBackup(directory);
  const store = await open(path);
  await newUser(store);
  await store.close();
  const { previousPath, users, orders } = await restore(copy, path);
  expect([users, orders]).toEqual([2, 1]);
  expect(previousPath).toBe(`${path}.2026-11-20T18-57-03.120Z`);
  expect(await totalOf(path)).toBe(2);
  expect(await totalOf(previousPath ?? "")).toBe(3);
  expect(await totalOf(copy)).toBe(2);
});

test("restore creates the database when there is none", async () => {
  using directory = makeDirectory();
  const copy = directory.at("copy.db");
  await backUp(await makeDatabase(directory), copy);
  const path = directory.at("new/b.db");
  expect((await restore(copy, path)).previousPath).toBeNull();
  expect(await totalOf(path)).toBe(2);
});

test("restore keeps the log of a database whose file is missing or empty", async () => {
  using directory = makeDirectory();
  const { path, copy } = await makeBackup(directory);
  for (const left of [null, ""]) {
    rmSync(path);
    if (left !== null) writeFileSync(path, left);
    writeFileSync(`${path}-wal`, "a log");
    const { previousPath } = await restoreSqlite({
      from: copy,
      databaseUrl: path,
      now: () => new Date(left === null ? 0 : 1),
    });
    expect(await Bun.file(`${previousPath}-wal`).text()).toBe("a log");
    expect(existsSync(`${path}-wal`)).toBe(false);
    expect(await totalOf(path)).toBe(2);
  }
});

test("backUp leaves no file when it is interrupted", async () => {
  using directory = makeDirectory();
  const path = await makeDatabase(directory);
  {
    using db = new Database(path);
    db.run("create table filler (content blob)");
    for (let i = 0; i < 20; i += 1) db.run("insert into filler values (zeroblob(5000000))");
  }
  const store = await open(path);
  const stop = new AbortController();
  const made = store.backUp(directory.at("copy.db"), () => {}, stop.signal);
  setTimeout(() => stop.abort(new AppError("operator", "interrupted")), 20);
  expect((await expectRejection(made, "operator")).message).toBe(
    `Cannot back up to ${directory.at("copy.db")}: interrupted`,
  );
  await store.close();
  expect(readdirSync(directory.path).filter((name) => name.startsWith("copy"))).toEqual([]);
});

test("backUp fails when the log of another database is next to the target", async () => {
  using directory = makeDirectory();
  const path = await makeDatabase(directory);
  const copy = directory.at("copy.db");
  writeFileSync(`${copy}-wal`, "a log");
  expect((await expectRejection(backUp(path, copy), "operator")).message).toBe(
    `Cannot back up to ${copy}: the log of another database is next to it: move that log away`,
  );
});

test("restore creates a writable database when the backup is read-only", async () => {
  using directory = makeDirectory();
  const copy = directory.at("copy.db");
  await backUp(await makeDatabase(directory), copy);
  chmodSync(copy, 0o444);
  await restore(copy, directory.at("new.db"));
  expect(statSync(directory.at("new.db")).mode & 0o777).toBe(0o600);
});

test("restore moves the log of a damaged database away from the new one", async () => {
  using directory = makeDirectory();
  const { path, copy } = await makeBackup(directory);
  writeFileSync(path, "not a database at all");
  writeFileSync(`${path}-wal`, "a log");
  const { previousPath } = await restore(copy, path);
  expect(await Bun.file(previousPath ?? "").text()).toBe("not a database at all");
  expect(existsSync(`${path}-wal`)).toBe(false);
  expect(await totalOf(path)).toBe(2);
});

test("backUp and restore reject a database when a row breaks a constraint", async () => {
  using directory = makeDirectory();
  const path = directory.at("a.db");
  const store = await open(path);
  await newUser(store);
  await store.close();
  {
    using db = new Database(path);
    db.run("pragma ignore_check_constraints = on");
    db.run("update users set metadata = '[1]'");
  }
  const damaged = await open(path);
  const finding = "CHECK constraint failed in users";
  const backup = damaged.backUp(directory.at("b.db"), () => {}, new AbortController().signal);
  await expectRejection(
    backup,
    "operator",
    `Cannot back up to ${directory.at("b.db")}: ${finding}`,
  );
  await damaged.close();
  const restored = restoreSqlite({ from: path, databaseUrl: directory.at("c.db"), now });
  await expectRejection(restored, "operator", `Cannot restore ${path}: ${finding}`);
  expect(existsSync(directory.at("c.db"))).toBe(false);
});

test("restore replaces a damaged database", async () => {
  using directory = makeDirectory();
  const { path, copy } = await makeBackup(directory);
  damagePage(path, 1);
  const damaged = readFileSync(path);
  const { previousPath } = await restore(copy, path);
  expect(readFileSync(previousPath ?? "").equals(damaged)).toBe(true);
  expect(await totalOf(path)).toBe(2);
});

test("restore migrates the schema when the backup is older", async () => {
  using directory = makeDirectory();
  const copy = directory.at("copy.db");
  {
    using db = new Database(copy, { create: true });
    migrate(db, migrations.slice(0, 1));
  }
  await restore(copy, directory.at("a.db"));
  expect(await totalOf(directory.at("a.db"))).toBe(0);
});

test("restore accepts a backup that has been opened for reading", async () => {
  using directory = makeDirectory();
  const { path, copy } = await makeBackup(directory);
  // A killed reader leaves an empty log.
  writeFileSync(`${copy}-shm`, "");
  expect(await restore(copy, path)).toMatchObject({ users: 2, orders: 1 });
});

test("restore leaves one file when the backup has been opened since", async () => {
  using directory = makeDirectory();
  const { path, copy } = await makeBackup(directory);
  // This sets WAL mode.
  expect(await totalOf(copy)).toBe(2);
  chmodSync(path, 0o640);
  await restore(copy, path);
  const left = readdirSync(directory.path).filter((name) => !name.includes("2026"));
  expect(left.sort()).toEqual(["a.db", "a.db-serving", "copy.db"]);
  expect(statSync(path).mode & 0o777).toBe(0o640);
});

test("restore follows links to the backup and to the database", async () => {
  using directory = makeDirectory();
  using elsewhere = makeDirectory();
  const { path, copy } = await makeBackup(directory);
  symlinkSync(copy, elsewhere.at("latest.db"));
  symlinkSync(path, elsewhere.at("link.db"));
  await restore(elsewhere.at("latest.db"), elsewhere.at("link.db"));
  expect(readdirSync(elsewhere.path).sort()).toEqual(["latest.db", "link.db"]);
  expect(lstatSync(elsewhere.at("link.db")).isSymbolicLink()).toBe(true);
  expect(await totalOf(path)).toBe(2);
  const live = await open(path);
  symlinkSync(path, elsewhere.at("live.db"));
  expect(
    (await expectRejection(restore(elsewhere.at("live.db"), copy), "operator")).message,
  ).toContain("a database in use, not a backup");
  await live.close();
});

test("restore fails and changes nothing when a command uses the database", async () => {
  using directory = makeDirectory();
  const { path, copy } = await makeBackup(directory);
  const store = await open(path);
  await newUser(store);
  expect((await expectRejection(restore(copy, path), "operator")).message).toBe(
    `Cannot restore ${copy}: another process is using the database: stop it first`,
  );
  await store.close();
  expect(await totalOf(path)).toBe(3);
});

test("restore fails and changes nothing when the name for the previous database is taken", async () => {
  using directory = makeDirectory();
  const { path, copy } = await makeBackup(directory);
  const store = await open(path);
  await newUser(store);
  await store.close();
  writeFileSync(`${path}.2026-11-20T18-57-03.120Z`, "precious");
  expect((await expectRejection(restore(copy, path), "operator")).message).toContain(
    "already exists",
  );
  expect(await totalOf(path)).toBe(3);
});

test("restore fails and changes nothing when a server uses the database", async () => {
  using directory = makeDirectory();
  const { path, copy } = await makeBackup(directory);
  const server = await open(path, true);
  await newUser(server);
  expect((await expectRejection(restore(copy, path), "operator")).message).toBe(
    `Cannot restore ${copy}: a server is using the database: stop it first`,
  );
  await server.close();
  expect(await totalOf(path)).toBe(3);
});

const unfit: readonly [string, (copy: string) => void, string][] = [
  ["is missing", (copy) => Bun.spawnSync(["rm", copy]), "no such file"],
  [
    "belongs to another program",
    (copy) => spoil(copy, "pragma application_id = 1"),
    "another application",
  ],
  [
    "has none of our tables",
    (copy) => spoil(copy, "drop table orders; drop table idempotency_keys"),
    "the user-api database lacks these tables: idempotency_keys, orders",
  ],
  ["is newer", (copy) => spoil(copy, "pragma user_version = 99"), "use a newer release"],
  ["is not sound", (copy) => spoil(copy, "delete from users"), "references a missing row"],
  ["is in use", (copy) => writeFileSync(`${copy}-wal`, ""), "a database in use, not a backup"],
  [
    "is being written",
    (copy) => writeFileSync(`${copy}-journal`, ""),
    "a database in use, not a backup",
  ],
  ["is a directory", (copy) => [rmSync(copy), mkdirSync(copy)], "it is not a regular file"],
  ["is empty", (copy) => writeFileSync(copy, ""), "not a SQLite database"],
  ["is no database", (copy) => writeFileSync(copy, "x".repeat(5000)), "not a SQLite database"],
];

function spoil(path: string, sql: string): void {
  using db = new Database(path);
  db.run("pragma foreign_keys = off");
  db.run(sql);
}

test.each(unfit)("restore fails and changes nothing when the backup %s", async (...row) => {
  const [, change, reason] = row;
  using directory = makeDirectory();
  const { path, copy } = await makeBackup(directory);
  change(copy);
  expect((await expectRejection(restore(copy, path), "operator")).message).toContain(reason);
  expect(await totalOf(path)).toBe(2);
  expect(readdirSync(directory.path).filter((name) => /partial|2026/.test(name))).toEqual([]);
});
