import { expect, test } from "bun:test";
import { chmodSync, chownSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { AppError } from "../../src/error.ts";
import { restoreSqlite } from "../../src/sqlite/restore.ts";
import { newUser } from "../contract/open.ts";
import { damagePage, rootPageOf } from "../damage.ts";
import { makeDirectory } from "../directory.ts";
import { expectRejection } from "../expect-error.ts";
import { backUp, makeBackup, makeDatabase, never, now, open, totalOf } from "./make-backup.ts";
import { runSql } from "./open-database.ts";

test("backUp writes a complete copy while the database is in use", async () => {
  using directory = makeDirectory();
  const path = await makeDatabase(directory);
  chmodSync(path, 0o644);
  const copy = directory.at("copy.db");
  const server = await open(path, "serve");
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
  // Nor is it for other users when it is complete.
  expect(statSync(copy).mode & 0o777).toBe(0o640);
  await server.close();
  expect(readdirSync(directory.path).sort()).toEqual([
    "a.db",
    "a.db-last-backup",
    "a.db-serving",
    "copy.db",
  ]);
  expect(await totalOf(copy)).toBe(2);
});

test("backUp contains every write that was acknowledged before it started, while others write", async () => {
  using directory = makeDirectory();
  const path = await makeDatabase(directory);
  await using server = await open(path, "serve");
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
});

test("backUp fails and leaves no file when the target exists or its directory does not", async () => {
  using directory = makeDirectory();
  const path = await makeDatabase(directory);
  const taken = directory.at("taken");
  writeFileSync(taken, "precious");
  await expectRejection(
    backUp(path, taken),
    "operator",
    `Cannot back up to ${taken}: the file already exists`,
  );
  expect(await Bun.file(taken).text()).toBe("precious");
  const nowhere = directory.at("no/where.db");
  await expectRejection(backUp(path, nowhere), "operator", /^Cannot back up to/);
  expect(readdirSync(directory.path).filter((name) => name.includes("partial"))).toEqual([]);
});

test("backUp does not overwrite a file that appears during the backup", async () => {
  using directory = makeDirectory();
  const store = await open(await makeDatabase(directory));
  const copy = directory.at("copy.db");
  const backing = store.backUp(copy, () => writeFileSync(copy, "precious"), never);
  await expectRejection(backing, "operator", `Cannot back up to ${copy}: the file already exists`);
  await store.close();
  expect(await Bun.file(copy).text()).toBe("precious");
  expect(readdirSync(directory.path).filter((name) => name.includes("partial"))).toEqual([]);
});

test("backUp fails with the reason when a page cannot be read", async () => {
  using directory = makeDirectory();
  const path = await makeDatabase(directory);
  damagePage(path, rootPageOf(path, "sqlite_autoindex_users_1"));
  const copy = directory.at("copy.db");
  await expectRejection(
    backUp(path, copy),
    "operator",
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
  await restoreSqlite({ from: copy, databaseUrl: path, now });
  expect(ownerOf(path)).toEqual([4321, 1234]);
});

test("backUp leaves no file when it is interrupted", async () => {
  using directory = makeDirectory();
  const path = await makeDatabase(directory);
  runSql(
    path,
    `
      create table filler as
      with recursive n (id) as (select 1 union all select id + 1 from n where id < 20)
      select zeroblob(5000000) as content
      from n
    `,
  );
  const store = await open(path);
  const stop = new AbortController();
  const made = store.backUp(directory.at("copy.db"), () => {}, stop.signal);
  setTimeout(() => stop.abort(new AppError("operator", "interrupted")), 20);
  await expectRejection(
    made,
    "operator",
    `Cannot back up to ${directory.at("copy.db")}: interrupted`,
  );
  await store.close();
  expect(readdirSync(directory.path).filter((name) => name.startsWith("copy"))).toEqual([]);
});

test("backUp fails when the WAL of another database is next to the target", async () => {
  using directory = makeDirectory();
  const path = await makeDatabase(directory);
  const copy = directory.at("copy.db");
  writeFileSync(`${copy}-wal`, "a log");
  await expectRejection(
    backUp(path, copy),
    "operator",
    `Cannot back up to ${copy}: the WAL (\`…-wal\`) of another database is next to it: move it away`,
  );
});

test("backUp and restore reject a database when a row breaks a constraint", async () => {
  using directory = makeDirectory();
  const path = await makeDatabase(directory);
  runSql(path, "pragma ignore_check_constraints = on; update users set metadata = '[1]'");
  const copy = directory.at("copy.db");
  const finding = "CHECK constraint failed in users";
  await expectRejection(backUp(path, copy), "operator", `Cannot back up to ${copy}: ${finding}`);
  const restored = restoreSqlite({ from: path, databaseUrl: directory.at("new.db"), now });
  await expectRejection(restored, "operator", `Cannot restore ${path}: ${finding}`);
  expect(readdirSync(directory.path).sort()).toEqual(["a.db", "a.db-serving"]);
});
