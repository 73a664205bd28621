// Commands that only read leave no trace in a database that no process has open, and none in its directory.
import { expect, test } from "bun:test";
import { chmodSync, copyFileSync, linkSync, rmSync, writeFileSync } from "node:fs";
import type { Store } from "../../src/domain/store.ts";
import { makeHarness } from "../cli/harness.ts";
import { newUser } from "../contract/open.ts";
import { makeDirectory } from "../support/directory.ts";
import { expectRejection } from "../support/expect-error.ts";
import { traceOf } from "../support/trace.ts";
import { backUp, makeDatabase, now, open, untilDraft } from "./make-backup.ts";
import { openDatabase, runSql } from "./open-database.ts";

function openToRead(databaseUrl: string) {
  return openDatabase(databaseUrl, { mode: "read", create: false, now });
}

test.each([
  "check",
  "token list",
  "export users",
  "export orders",
  "import users --dry-run",
  "backup backup.db",
  "copy --to copy.db",
  "restore SOURCE --database-url restored.db",
])("%s leaves no trace when no process has the database open", async (command) => {
  // One is still in WAL mode, the other one was never opened since it was written.
  const { directory, path: closed } = await makeDatabase();
  const fresh = directory.at("a ?#%é.db");
  await backUp(closed, fresh);
  for (const path of [closed, fresh]) {
    using target = makeDirectory();
    const words = command.replace("SOURCE", "").split(" ");
    const args = words.map((word) => (word.endsWith(".db") ? target.at(word) : word || path));
    using world = makeHarness({ environment: { DATABASE_URL: path } });
    chmodSync(path, 0o444);
    chmodSync(directory.path, 0o555);
    const before = traceOf(directory.path);
    expect(await world.feed('{"email":"c@b.cd"}\n', ...args)).toMatchObject({ code: 0 });
    expect(traceOf(directory.path)).toEqual(before);
    chmodSync(directory.path, 0o755);
  }
});

test("a database is read with its log when there is one, and when only another name of it is removed meanwhile", async () => {
  const { directory, path } = await makeDatabase();
  linkSync(path, directory.at("other"));
  const reading = await openToRead(path);
  rmSync(directory.at("other"));
  expect(await reading.check()).toEqual([]);
  await reading.close();
  await using server = await open(path, "serve");
  await newUser(server);
  // As after a crash.
  const crashed = directory.at("crashed.db");
  for (const suffix of ["", "-wal"]) copyFileSync(path + suffix, crashed + suffix);
  for (const database of [path, crashed]) {
    await using store = await openToRead(database);
    expect((await store.users.list({ limit: 1, offset: 0 })).total).toBe(3);
    const readUsers = store.withCopySource((source) => Array.fromAsync(source.read("users")));
    expect((await readUsers).flat()).toHaveLength(3);
    const made = await backUp(database, directory.at(`${crypto.randomUUID()}.db`));
    expect(made).toMatchObject({ users: 3 });
  }
});

const operations: Readonly<Record<string, (store: Store) => Promise<unknown>>> = {
  "a list": async (store) => store.users.list({ limit: 10, offset: 0 }),
  "a copy of rows": (store) =>
    store.withCopySource((source) => Array.fromAsync(source.read("users"))),
  "a copy of ids": (store) => store.withCopySource((source) => source.lastId("users")),
};

const changes: readonly [string, (path: string) => unknown][] = [
  [
    "written to",
    // First to the log, then to the file itself.
    async (path) => {
      await using server = await open(path, "serve");
      await newUser(server);
    },
  ],
  ["overwritten", (path) => writeFileSync(path, "x".repeat(40_000))],
  ["deleted", (path) => rmSync(path)],
];

for (const [what, run] of Object.entries(operations))
  for (const [how, change] of changes)
    test(`${what} fails with the change, not with damage, when the database was ${how} meanwhile`, async () => {
      const { path } = await makeDatabase();
      await using store = await openToRead(path);
      await change(path);
      const why = new RegExp(
        `another process has changed ${path} meanwhile: run the command again$`,
      );
      await expectRejection(run(store), "operator", why);
    });

test("a backup fails when another process has changed the database meanwhile", async () => {
  const { directory, path } = await makeDatabase();
  const copy = directory.at("b.db");
  const backing = backUp(path, copy);
  await untilDraft(directory);
  runSql(path, "update users set version = version + 1");
  const why = /another process has changed \S+ meanwhile: run the command again$/;
  await expectRejection(backing, "operator", why);
  expect(await Bun.file(copy).exists()).toBe(false);
});

test("a command reads the state of its start when a server starts and writes only to its log", async () => {
  const { path } = await makeDatabase();
  const store = await openToRead(path);
  const server = await open(path, "serve");
  await newUser(server);
  expect(await store.users.list({ limit: 10, offset: 0 })).toMatchObject({ total: 2 });
  await store.close();
  await server.close();
  using world = makeHarness({ environment: { DATABASE_URL: path } });
  expect((await world.run("export", "users")).stderr).toBe("Exported 3 users\n");
});
