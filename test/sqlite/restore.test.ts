import { expect, test } from "bun:test";
import * as fs from "node:fs";
import type { Store } from "../../src/domain/store.ts";
import { hashToken, newToken } from "../../src/domain/token.ts";
import { removeChecksum } from "../../src/sqlite/whole/backup-checksum.ts";
import { restoreSqlite } from "../../src/sqlite/whole/restore.ts";
import { newUser } from "../contract/open.ts";
import { damagePage, rootPageOf } from "../support/damage.ts";
import { makeDirectory } from "../support/directory.ts";
import { expectRejection } from "../support/expect-error.ts";
import { backUp, makeBackup, makeDatabase, now, open, totalOf } from "./make-backup.ts";
import { query, runSql, skipLockWaits } from "./open-database.ts";

skipLockWaits();

function restore(from: string, databaseUrl: string) {
  return restoreSqlite({ from, databaseUrl, now });
}

test("restore replaces the database with the backup, in one file, and keeps the previous one", async () => {
  const { directory, path, copy } = await makeBackup();
  const store = await open(path);
  await newUser(store);
  await store.close();
  runSql(copy, "analyze");
  // This sets WAL mode.
  expect(await totalOf(copy)).toBe(2);
  // A killed reader leaves an empty log.
  fs.writeFileSync(`${copy}-shm`, "");
  fs.chmodSync(path, 0o640);
  const { previousPath, previous } = await restore(copy, path);
  expect(previous).toMatchObject({ users: 3, orders: 1, changedAt: now() });
  expect(previousPath).toBe(`${path}.2026-11-20T18-57-03.120Z`);
  const left = fs.readdirSync(directory.path).filter((name) => !name.includes("2026"));
  expect(left.sort()).toEqual(["a.db", "a.db-serving", "copy.db", "copy.db-shm"]);
  expect(fs.statSync(path).mode & 0o777).toBe(0o640);
  expect(query(path, "select name from sqlite_schema where name like 'sqlite_stat%'")).toEqual([]);
  expect(await totalOf(path)).toBe(2);
  expect(await totalOf(previousPath ?? "")).toBe(3);
});

test.each<[string, (path: string) => void]>([
  ["missing", fs.rmSync],
  ["empty", (path) => fs.writeFileSync(path, "")],
  ["not a database", (path) => fs.writeFileSync(path, "not a database at all")],
])("restore moves the file and its log away when the database is %s", async (_what, spoil) => {
  const { path, copy } = await makeBackup();
  // Its lock file shows that it is one of ours.
  await (await open(path, "serve")).close();
  spoil(path);
  const contents = fs.existsSync(path) ? fs.readFileSync(path) : null;
  fs.writeFileSync(`${path}-wal`, "a log");
  const { previousPath = "" } = await restore(copy, path);
  if (contents !== null) expect(fs.readFileSync(`${previousPath}`).equals(contents)).toBe(true);
  expect(await Bun.file(`${previousPath}-wal`).text()).toBe("a log");
  expect(fs.existsSync(`${path}-wal`)).toBe(false);
  expect(await totalOf(path)).toBe(2);
});

test("restore follows links to the backup and to the database", async () => {
  using elsewhere = makeDirectory();
  const { path, copy } = await makeBackup();
  fs.symlinkSync(copy, elsewhere.at("latest.db"));
  fs.symlinkSync(path, elsewhere.at("link.db"));
  await restore(elsewhere.at("latest.db"), elsewhere.at("link.db"));
  expect(fs.readdirSync(elsewhere.path).sort()).toEqual(["latest.db", "link.db"]);
  expect(fs.lstatSync(elsewhere.at("link.db")).isSymbolicLink()).toBe(true);
  expect(await totalOf(path)).toBe(2);
  await using _live = await open(path);
  fs.symlinkSync(path, elsewhere.at("live.db"));
  await expectRejection(restore(elsewhere.at("live.db"), copy), "operator", inUse);
});

for (const [user, mode, why] of [
  ["command", "write", "another process is using the database: stop it first"],
  ["server", "serve", "a server is using the database: stop it first"],
] as const)
  test(`restore fails and changes nothing when a ${user} uses the database, or a file has the name for it`, async () => {
    const { path, copy } = await makeBackup();
    const store = await open(path, mode);
    await newUser(store);
    await expectRejection(restore(copy, path), "operator", `Cannot restore ${copy}: ${why}`);
    await store.close();
    fs.writeFileSync(`${path}.2026-11-20T18-57-03.120Z`, "precious");
    await expectRejection(restore(copy, path), "operator", /the file already exists$/);
    expect(await totalOf(path)).toBe(3);
  });

const inUse = /a database in use, not a backup/;

test.each<[string, (copy: string) => void, RegExp]>([
  ["is missing", (copy) => Bun.spawnSync(["rm", copy]), /no such file/],
  ["lacks a table", (copy) => runSql(copy, "drop table feed"), /version 1: "feed" is missing/],
  ["is not sound", (copy) => runSql(copy, "delete from users"), /references a missing row/],
  ["is in use", (copy) => fs.writeFileSync(`${copy}-wal`, ""), inUse],
  ["is being written", (copy) => fs.writeFileSync(`${copy}-journal`, ""), inUse],
  ["is a directory", (copy) => [fs.rmSync(copy), fs.mkdirSync(copy)], /it is not a regular file/],
  ["is no database", (copy) => fs.writeFileSync(copy, "x".repeat(5000)), /not a SQLite database/],
])("restore fails and changes nothing when the backup %s", async (_what, change, reason) => {
  const { directory, path, copy } = await makeBackup();
  // It would differ from the backup.
  removeChecksum(copy);
  change(copy);
  await expectRejection(restore(copy, path), "operator", reason);
  expect(await totalOf(path)).toBe(2);
  expect(fs.readdirSync(directory.path).filter((name) => /partial|2026/.test(name))).toEqual([]);
});

function addTokens({ tokens }: Store, names: readonly string[], expiresAt: string | null = null) {
  const fields = { scope: "read", expires_at: expiresAt } as const;
  const add = (name: string) => tokens.create({ hash: hashToken(newToken()), name, ...fields });
  return Promise.all(names.map(add));
}

async function unrevoked(path: string): Promise<string[]> {
  await using store = await open(path);
  const tokens = await store.tokens.list();
  return tokens.filter(({ revoked_at }) => revoked_at === null).map(({ name }) => name);
}

test("restore keeps tokens revoked when the previous database has revoked them since the backup", async () => {
  const { directory, path } = await makeDatabase();
  const [copy, crashed] = [directory.at("copy.db"), directory.at("b.db")];
  const store = await open(path);
  await addTokens(store, ["old", "leaked", "kept", "again"]);
  await store.tokens.revoke("old");
  await backUp(path, copy);
  // Another token with the name of a revoked one.
  await store.tokens.revoke("again");
  await addTokens(store, ["again", "new"]);
  await store.tokens.revoke("leaked");
  // As after a crash: only the log has it.
  for (const suffix of ["", "-wal"]) fs.copyFileSync(path + suffix, crashed + suffix);
  await store.close();
  const result = await restore(copy, crashed);
  expect(result).toMatchObject({ revokedTokens: ["leaked", "again"], validTokens: ["kept"] });
  expect(result.lostTokens).toEqual(["again", "new"]);
  expect(await unrevoked(crashed)).toEqual(["kept"]);
  expect(await unrevoked(copy)).toEqual(["leaked", "kept", "again"]);
});

test("restore names the valid tokens of the backup when the previous database cannot be read", async () => {
  const { directory, path } = await makeDatabase();
  const copy = directory.at("copy.db");
  const store = await open(path);
  await addTokens(store, ["leaked", "old"]);
  await addTokens(store, ["late"], "2026-11-21T00:00:00.000Z");
  await addTokens(store, ["expired"], "2026-11-20T00:00:00.000Z");
  await store.tokens.revoke("old");
  await backUp(path, copy);
  await store.tokens.revoke("leaked");
  await store.close();
  const unknown = { revokedTokens: null, lostTokens: [], validTokens: ["leaked", "late"] };
  expect(await restore(copy, directory.at("none.db"))).toMatchObject(unknown);
  const damaged = directory.at("text.db");
  fs.writeFileSync(damaged, "not a database at all");
  const why = `${damaged} is not a user-api database: move it away`;
  await expectRejection(restore(copy, damaged), "operator", `Cannot restore ${copy}: ${why}`);
  // It was one of ours.
  fs.writeFileSync(`${damaged}-serving`, "");
  expect(await restore(copy, damaged)).toMatchObject(unknown);
  damagePage(path, rootPageOf(path, "tokens"));
  expect(await restore(copy, path)).toMatchObject(unknown);
});

test("restore puts the log back, and leaves no other file, when it fails", async () => {
  const { directory, path, copy } = await makeBackup();
  fs.writeFileSync(path, "not a database at all");
  fs.writeFileSync(`${path}-wal`, "a log");
  const before = fs.readdirSync(directory.path).sort();
  // Just before the files are replaced, the new one disappears.
  const removeDraft = () => {
    for (const name of fs.readdirSync(directory.path))
      if (name.includes(".partial")) fs.rmSync(directory.at(name), { recursive: true });
    return now();
  };
  const restoring = restoreSqlite({ from: copy, databaseUrl: path, now: removeDraft });
  await expectRejection(restoring, "operator", /^Cannot restore /);
  expect(fs.readdirSync(directory.path).sort()).toEqual(before);
  expect(await Bun.file(`${path}-wal`).text()).toBe("a log");
  expect(await Bun.file(path).text()).toBe("not a database at all");
});
