import { Database } from "bun:sqlite";
import { describe, expect, test as inTurn } from "bun:test";
import { linkSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, dirname } from "node:path";
import { redactPassword } from "../../src/base/database-url.ts";
import { hashToken, newToken } from "../../src/domain/token.ts";
import { newUser, oddTexts, orderFields, parsed, setFields, userFields } from "../contract/open.ts";
import { cluster, makeHarness as makePostgres } from "../postgres/postgres-harness.ts";
import { runSql } from "../sqlite/open-database.ts";
import { listed } from "../support/listed.ts";
import { withStore } from "../support/open-store.ts";
import type { Outcome } from "../support/program.ts";
import { failed, type Harness, makeHarness } from "./harness.ts";

// Most tests only wait for something.
const test = inTurn.concurrent;

const key = { owner: "a".repeat(64), key: "key-1", fingerprint: "f".repeat(64) };
const kept = userFields({ email: "kept@b.cd", reference: "C-1" });
const imported = { ...orderFields(4), reference: "old shop:\t1" };
const token = newToken();

/** A database with rows of every kind. The rows with the last ids are deleted. */
async function makeFilled(): Promise<Harness> {
  const world = makeHarness();
  await withStore(
    world.path,
    async (store) => {
      const { users, orders, tokens, bulk } = store;
      await newUser(store);
      await users.remove(1, null);
      for (const text of oddTexts) await newUser(store, { name: text, metadata: { [text]: text } });
      await users.create(kept, key);
      await users.update(5, (user) => ({ ...user, name: null }), null);
      for (const userId of [2, 3, 2, 2]) await orders.create(orderFields(userId), null);
      const paid = setFields({ status: "paid", refunded: 40, metadata: { a: "b" } });
      await orders.update(3, paid, null);
      await bulk.orders.import([imported]);
      const { id } = await newUser(store);
      await users.remove(id, null);
      const fields = { scope: "read", expires_at: "2027-01-01T00:00:00.000Z" } as const;
      await tokens.create({ hash: "b".repeat(64), name: "old", ...fields });
      await tokens.revoke("old");
      await tokens.create({ hash: hashToken(token), name: "é", ...fields });
      await tokens.touch(hashToken(token), "2026-11-20T18:57:00.000Z");
    },
    { now: () => world.clock.time },
  );
  return world;
}

function contentsOf(path: string): Record<string, unknown[]> {
  using db = new Database(path, { readonly: true });
  const tables = ["users", "orders", "tokens", "changes", "idempotency_keys", "sqlite_sequence"];
  const selects = tables.map((table) => `select * from ${table} order by 1`);
  selects.push("select * from buckets where ids > 0 order by list, level, bucket");
  return Object.fromEntries(selects.map((select) => [select, db.prepare(select).all()]));
}

function filesBeside(path: string): string[] {
  return readdirSync(dirname(path)).filter((name) => name.startsWith("copy.db"));
}

const summary = "11 users, 5 orders, 2 tokens, 1 idempotency key and 22 changes";

function expectCopied(outcome: Outcome): void {
  expect(outcome).toMatchObject({ code: 0, stderr: "" });
  expect(outcome.stdout).toMatch(/^Copied .+ to .+ \(verified\): /);
  expect(outcome.stdout).toEndWith(`: ${summary}\n`);
  expect(outcome.stdout).not.toContain("secret");
}

async function expectComplete(databaseUrl: string, now: () => Date): Promise<void> {
  await withStore(
    databaseUrl,
    async (store) => {
      expect(await store.check()).toEqual([]);
      const { replayed, ...record } = await store.users.create(kept, key);
      expect([parsed(record), replayed]).toMatchObject([kept, true]);
      const found = await store.tokens.find(hashToken(token));
      expect(found).toMatchObject({ name: "é", last_used_at: "2026-11-20T18:57:00.000Z" });
      expect((await store.tokens.find("b".repeat(64)))?.revoked_at).not.toBeNull();
      expect(await store.bulk.orders.import([imported])).toEqual([{ outcome: "unchanged" }]);
      expect((await newUser(store)).id).toBe(14);
      expect((await store.orders.create(orderFields(2), null)).id).toBe(6);
      const page = await listed(store.orders.list({ user_id: 2, limit: 10, offset: 0 }));
      expect([page.total, page.rows.map(({ id }) => id)]).toEqual([4, [1, 3, 4, 6]]);
      expect((await store.users.list({ limit: 1, offset: 11 })).total).toBe(12);
      expect(await store.check()).toEqual([]);
    },
    { now },
  );
}

const rowsIn = ({ run }: Awaited<ReturnType<typeof makePostgres>>) =>
  run("select id from users union select id from orders");

describe.if(cluster !== null)("copy", () => {
  test("copies everything to PostgreSQL, to another PostgreSQL database and back to SQLite", async () => {
    using world = await makeFilled();
    await using first = await makePostgres(true);
    await using second = await makePostgres();
    const back = world.at("copy.db");
    expectCopied(await world.run("copy", "--to", first.url));
    expectCopied(await world.run("copy", "--database-url", first.url, "--to", second.url));
    expectCopied(await world.run("copy", "--database-url", second.url, "--to", back));
    expect(contentsOf(back)).toEqual(contentsOf(world.path));
    expect(filesBeside(back)).toEqual(["copy.db"]);
    for (const url of [second.url, first.url]) await expectComplete(url, () => world.clock.time);
  });

  test("leaves no rows when tables are locked, or it is interrupted, and assigns no id again", async () => {
    using world = await makeFilled();
    await using postgres = await makePostgres();
    const copy = (url = postgres.url) => world.begin("copy", "--to", url);
    const expectNothing = async (outcome: Outcome, problem: string) => {
      expect(outcome).toMatchObject({ code: 1, stdout: "" });
      expect(outcome.stderr).toEndWith(`: ${problem}\n`);
      expect(await rowsIn(postgres)).toEqual([]);
    };
    await expectNothing(await copy().stop(), "interrupted");
    {
      await using _held = await postgres.hold("lock table orders in row exclusive mode");
      const why = "another session has locked tables: see pg_blocking_pids and pg_stat_activity";
      await expectNothing(await copy(`${postgres.url}&lock_timeout=100`).ended, why);
    }
    await postgres.run("select setval('users_id_seq', 100)");
    expectCopied(await copy().ended);
    expect((await newUser(await postgres.open())).id).toBe(101);
  });

  test("fails when the target is not empty or the source is damaged, in both directions", async () => {
    using world = await makeFilled();
    await using postgres = await makePostgres();
    await using empty = await makePostgres();
    const store = await postgres.open();
    const copy = (url: string) => world.run("copy", "--to", url);
    const line = `Cannot copy to ${redactPassword(postgres.url)}: the database is not empty: it contains`;
    const record = await store.users.create(userFields(), key);
    expect(await copy(postgres.url)).toEqual(failed(`${line} users`));
    await store.users.remove(record.id, null, { ...key, key: "key-2" });
    expect(await copy(postgres.url)).toEqual(failed(`${line} idempotency keys`));
    const fields = { hash: key.owner, name: "a", scope: "read", expires_at: null } as const;
    await store.tokens.create(fields);
    expect(await copy(postgres.url)).toEqual(failed(`${line} tokens`));
    runSql(world.path, "update orders set total = total + 1 where id = 3");
    const there = await copy(empty.url);
    const problem = /: the total of order 3 does not match its items\n$/;
    expect([there.code, there.stderr]).toEqual([1, expect.stringMatching(problem)]);
    expect(await rowsIn(empty)).toEqual([]);

    await newUser(store);
    await store.orders.create(orderFields(2), null);
    await postgres.run("set session_replication_role = replica; delete from users");
    const back = world.at("copy.db");
    const copyBack = () => world.run("copy", "--database-url", postgres.url, "--to", back);
    expect(await copyBack()).toEqual(
      failed(`Cannot copy to ${back}: row 1 of orders references a missing row`),
    );
    // What the target cannot store.
    await postgres.run("delete from orders");
    await newUser(store);
    await postgres.run("alter table users drop constraint users_email_check");
    await postgres.run("update users set email = ''");
    expect((await copyBack()).stderr).toBe(`Cannot copy to ${back}: a row of users is invalid\n`);
    await postgres.run("update users set email = 'a@b.cd'");
    // SQLite counts every skipped id, which would take too long.
    await postgres.run("select setval('users_id_seq', 16777220)");
    expect((await copyBack()).stderr).toBe(
      `Cannot copy to ${back}: users: id must be at most 16777216 beyond the last one, 3\n`,
    );
    expect(filesBeside(back)).toEqual([]);
  });

  test("names the database and leaves no rows when a connection is lost", async () => {
    using world = await makeFilled();
    await using source = await makePostgres();
    await using target = await makePostgres();
    await world.run("copy", "--to", source.url);
    const back = world.at("copy.db");
    // A copy waits until it is terminated, also if that takes long on a busy machine.
    const urlOf = ({ url }: { url: string }) => `${url}&lock_timeout=0&statement_timeout=0`;
    const shown = (ends: { url: string }) => redactPassword(urlOf(ends));
    const lost = "terminating connection due to administrator command";
    const unread = `Cannot read ${shown(source)}: ${lost}`;
    const copies: [typeof source, string, string][] = [
      [source, urlOf(target), `${shown(target)}: ${unread}`],
      [source, back, `${back}: ${unread}`],
      [target, urlOf(target), `${shown(target)}: ${lost}`],
    ];
    for (const [ends, to, line] of copies) {
      // Its connection is terminated while it waits for a lock.
      await using _held = await ends.hold("lock table tokens in access exclusive mode");
      const copying = world.run("copy", "--database-url", urlOf(source), "--to", to);
      const end = `
        select pg_terminate_backend(pid)
        from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'
      `;
      while ((await ends.run(end)).length === 0) await Bun.sleep(5);
      expect(await copying).toEqual(failed(`Cannot copy to ${line}`));
    }
    expect(filesBeside(back)).toEqual([]);
    expect(await rowsIn(target)).toEqual([]);
  });
});

test("copy copies to another SQLite file, unless it is interrupted, and names a target that it cannot use", async () => {
  using world = await makeFilled();
  const to = world.at("copy.db");
  const copy = (target = to) => world.begin("copy", "--to", target);
  const interrupted = failed(`Cannot copy to ${to}: interrupted`);
  expect(await copy().stop()).toEqual(interrupted);
  writeFileSync(`${to}-wal`, "");
  const why = "the WAL (`…-wal`) of another database is next to it: move it away";
  expect(await copy().ended).toEqual(failed(`Cannot copy to ${to}: ${why}`));
  rmSync(`${to}-wal`);
  expect(filesBeside(to)).toEqual([]);
  expectCopied(await copy().ended);
  expect(contentsOf(to)).toEqual(contentsOf(world.path));
  await expectComplete(to, () => world.clock.time);
  expect(await copy("postgres://ann:secret@127.0.0.1:1/a").ended).toEqual(
    failed("Cannot copy to postgres://ann@127.0.0.1:1/a: connection refused, or unknown host"),
  );
});

test("copy warns when a server that writes is using the source, and commands fail when it uses another name of the file", async () => {
  using world = await makeFilled();
  const serving = await world.serve();
  const to = (name: string) => ["copy", "--to", world.at(name)];
  const link = world.at("link.db");
  symlinkSync(world.path, link);
  for (const path of [world.path, link]) {
    const args = [...to(`${basename(path)}-copy`), "--database-url", path];
    const { code, stderr } = await world.run(...args);
    const warning = `A server is using ${path}: what it writes after the copy has started is not copied\n`;
    expect([code, stderr]).toEqual([0, warning]);
  }
  // The server does not know it by this name.
  const other = world.at("other.db");
  linkSync(world.path, other);
  const restoring = ["restore", other, "--database-url", world.at("restored.db")];
  for (const args of [restoring, ["check", "--database-url", other]])
    expect((await world.run(...args)).stderr).toContain("the file has 2 names (hard links)");
  rmSync(other);
  await serving.stop();
  const reading = await world.serve("--read-only");
  expectCopied(await world.run(...to("two.db")));
  await reading.stop();
});
