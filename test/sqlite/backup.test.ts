import { expect, test } from "bun:test";
import { chmodSync, chownSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { setImmediate as nextTurn } from "node:timers/promises";
import { AppError } from "../../src/base/error.ts";
import { restoreSqlite } from "../../src/sqlite/whole/restore.ts";
import { newUser } from "../contract/open.ts";
import { damagePage, rootPageOf } from "../support/damage.ts";
import { makeDirectory } from "../support/directory.ts";
import { expectRejection } from "../support/expect-error.ts";
import { hashOf } from "../support/trace.ts";
import {
  backUp,
  breakConstraint,
  makeBackup,
  makeDatabase,
  now,
  open,
  totalOf,
  untilDraft,
} from "./make-backup.ts";
import { runSql } from "./open-database.ts";

test("backUp writes a complete copy, of all that was acknowledged, while the database is in use", async () => {
  const { directory, path } = await makeDatabase();
  chmodSync(path, 0o644);
  const copy = directory.at("copy.db");
  const server = await open(path, "serve");
  // Only the log has it.
  await newUser(server);
  const backing = backUp(path, copy);
  // Only its owner can read an incomplete copy, or create a file next to it.
  expect(statSync(await untilDraft(directory)).mode & 0o777).toBe(0o700);
  const contents = await backing;
  const { size: bytes } = statSync(copy);
  expect(contents).toEqual({ users: 3, orders: 1, tokens: 0, bytes, warnings: [] });
  // Nor is it for other users when it is complete.
  expect(statSync(copy).mode & 0o777).toBe(0o640);
  await server.close();
  expect(readdirSync(directory.path).sort()).toEqual([
    "a.db",
    "a.db-last-backup",
    "a.db-serving",
    "copy.db",
  ]);
  expect(await totalOf(copy)).toBe(3);
});

test.each<[string, (path: string, copy: string) => void, string]>([
  [
    "the WAL of another database is next to it",
    (_, copy) => writeFileSync(`${copy}-wal`, "precious"),
    "the WAL (`…-wal`) of another database is next to it: move it away",
  ],
  [
    "a page cannot be read",
    (path) => damagePage(path, rootPageOf(path, "sqlite_autoindex_users_1")),
    "database disk image is malformed",
  ],
  [
    "a row breaks a constraint",
    (path) => runSql(path, breakConstraint),
    "CHECK constraint failed in users",
  ],
])("backUp fails and changes no file when %s", async (_what, prepare, why) => {
  using target = makeDirectory();
  const { path } = await makeDatabase();
  const copy = target.at("copy.db");
  prepare(path, copy);
  const files = () => readdirSync(target.path).map((name) => [name, hashOf(target.at(name))]);
  const before = files();
  await expectRejection(backUp(path, copy), "operator", `Cannot back up to ${copy}: ${why}`);
  expect(files()).toEqual(before);
});

test("backUp does not overwrite a file, also if it appears during the backup", async () => {
  const { directory, path } = await makeDatabase();
  const copy = directory.at("copy.db");
  const backing = backUp(path, copy);
  await untilDraft(directory);
  writeFileSync(copy, "precious");
  await expectRejection(backing, "operator", `Cannot back up to ${copy}: the file already exists`);
  expect(await Bun.file(copy).text()).toBe("precious");
  expect(readdirSync(directory.path).filter((name) => name.includes("partial"))).toEqual([]);
});

const isRoot = process.getuid?.() === 0;

test.if(isRoot)("backUp and restore keep the owner when root calls them", async () => {
  const { directory, path, copy } = await makeBackup();
  chownSync(path, 4321, 1234);
  const ownerOf = (name: string) => [statSync(name).uid, statSync(name).gid];
  await backUp(path, directory.at("next.db"));
  expect(ownerOf(directory.at("next.db"))).toEqual([4321, 1234]);
  await restoreSqlite({ from: copy, databaseUrl: path, now });
  expect(ownerOf(path)).toEqual([4321, 1234]);
});

test("backUp leaves no file when it is interrupted", async () => {
  const { directory, path } = await makeDatabase();
  runSql(
    path,
    `
      insert into idempotency_keys (owner, key, fingerprint, record, created_at)
      with recursive n (id) as (select 1 union all select id + 1 from n where id < 20)
      select '', id, '', json_object('filler', hex(zeroblob(2500000))), ''
      from n
    `,
  );
  const stop = new AbortController();
  const copy = directory.at("copy.db");
  const made = backUp(path, copy, { signal: stop.signal });
  const draft = await untilDraft(directory);
  while (statSync(draft).size === 0) await nextTurn();
  stop.abort(new AppError("operator", "interrupted"));
  await expectRejection(made, "operator", `Cannot back up to ${copy}: interrupted`);
  expect(readdirSync(directory.path).filter((name) => name.startsWith("copy"))).toEqual([]);
});
