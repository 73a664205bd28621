// Error messages for the operator are one line without the password.
import { expect } from "bun:test";
import type { StoreOptions } from "../../src/domain/store.ts";
import { severalServers } from "../../src/postgres/server/citus.ts";
import { connect, type Database } from "../../src/postgres/server/connection.ts";
import { oneServer } from "../../src/postgres/server/placement.ts";
import { createStore } from "../../src/postgres/store.ts";
import { migrate, migrations } from "../../src/postgres/whole/migrate.ts";
import { newUser, orderFields, parsed, setFields } from "../contract/open.ts";
import { expectRejection } from "../support/expect-error.ts";
import { listed } from "../support/listed.ts";
import { storeOptions } from "../support/open-store.ts";
import { databaseOf } from "./instance.ts";
import { deleteUser, type Harness, makeHarness, patient, test } from "./postgres-harness.ts";

function change(url: string, parts: Partial<URL>) {
  return Object.assign(new URL(url), { password: "hunter2", ...parts }).href;
}

function expectNotOpened(world: Harness, problem: RegExp, databaseUrl = world.url) {
  return expectRejection(world.open({ databaseUrl }), "operator", problem);
}

const allSettings = `
  select name, setting
  from pg_settings
  where name <> 'application_name'
  order by name
`;

test("open rejects with a one-line message when it cannot connect", async (world) => {
  const wrong: [Parameters<typeof change>[1], RegExp][] = [
    [{ port: "1" }, /: connection refused, or unknown host$/],
    [
      { pathname: "/nowhere" },
      /\/nowhere: the database does not exist: create it with `createdb`$/,
    ],
    [{ username: "stranger" }, /the server does not let this user log in from this host$/],
    [{ search: "sslmode=require" }, /the URL requires TLS, but the server does not support it$/],
    [{ pathname: "/50%" }, /a % in the URL must be written as %25$/],
    [{ password: "hunter2%" }, /a % in the URL must be written as %25$/],
    [{ search: "nonsense=1" }, /unrecognized configuration parameter "nonsense"$/],
  ];
  for (const [parts, line] of wrong) {
    const { message } = await expectNotOpened(world, line, change(world.url, parts));
    expect(message).toStartWith("Cannot open postgres://");
    expect(message).not.toContain("hunter2");
    expect(message).not.toContain("\n");
  }
});

test("open gives each process another name and its settings, apart from servers behind a pooler, unless the URL has them", async (world) => {
  const nameWith = (parameters: string, mode: StoreOptions["mode"]) =>
    connect({ databaseUrl: world.url + parameters, mode }).settings["application_name"];
  const names = [nameWith("", "serve"), nameWith("&prepare=false", "read")];
  expect(new Set(names).size).toBe(2);
  for (const name of names) expect(name).toMatch(/^user-api [\da-f]{8}$/);
  expect(nameWith("&prepare=false", "serve")).toBe("user-api");
  expect(nameWith("&application_name=a", "serve")).toBeUndefined();
  // Those of several servers apply as well, unless the URL has them.
  const databaseUrl = `${world.url}&citus.max_adaptive_executor_pool_size=4`;
  const { settings } = connect({ databaseUrl }, severalServers.settings);
  const { "citus.max_adaptive_executor_pool_size": _, ...others } = severalServers.settings;
  expect(settings).toMatchObject(others);
  expect(Object.keys(settings)).not.toContain("citus.max_adaptive_executor_pool_size");
});

test("open sets what the role has after the statements of docs/scaling-out.md", async (world) => {
  const page = await Bun.file(`${import.meta.dir}/../../docs/scaling-out.md`).text();
  const statements = page.match(/^alter role ann in database user_api set .*$/gm) ?? [];
  const target = `alter role ${new URL(world.url).username} in database ${databaseOf(world.url)} `;
  for (const statement of statements)
    await world.run(statement.replace("alter role ann in database user_api ", target));
  const settingsOf = (databaseUrl: string) =>
    world.connect(databaseUrl).run("read", (session) => session.all(allSettings));
  const ofRole = await settingsOf(change(world.url, { search: "prepare=false" }));
  expect(ofRole).toEqual(await settingsOf(world.url));
  // Other roles keep theirs, also in this database.
  expect(await world.run("select from pg_db_role_setting where setrole = 0::oid")).toEqual([]);
});

test("open warns about settings that a pooler has rejected and the role does not have", async (world) => {
  const warningsOf = async (search: string, mode: StoreOptions["mode"] = "serve") => {
    const warnings: string[] = [];
    const databaseUrl = change(world.url, { search });
    const onWarning = (text: string) => warnings.push(text);
    const store = await world.open({ databaseUrl, mode, onWarning });
    await store.close();
    // The servers of the tests may have it off, to be faster.
    return warnings.filter((text) => !text.startsWith("fsync"));
  };
  expect(await warningsOf("")).toEqual([]);
  expect(await warningsOf("statement_timeout=2000")).toEqual([]);
  const role =
    "the role in PostgreSQL should have statement_timeout = '5000', lock_timeout = '200', " +
    "idle_in_transaction_session_timeout = '10000', row_security = 'off', jit = 'off', " +
    "enable_seqscan = 'off', plan_cache_mode = 'force_generic_plan'";
  expect(await warningsOf("prepare=false")).toEqual([role]);
  // Not that all processes should only read.
  expect(await warningsOf("prepare=false", "serve-read-only")).toEqual([role]);
  await world.run(`alter database ${databaseOf(world.url)} set synchronous_commit = off`);
  const danger =
    "synchronous_commit is off in PostgreSQL: writes that were acknowledged can be lost";
  expect(await warningsOf("prepare=false")).toEqual([danger, role]);
  // A connection sets it, unless the URL does.
  expect(await warningsOf("")).toEqual([]);
  expect(await warningsOf("synchronous_commit=off")).toEqual([danger]);
});

test("open rejects a database that is empty when create is false, has tables of another application, or is not UTF-8", async () => {
  await using world = await makeHarness(true);
  await expectRejection(world.open({ create: false }), "operator", /the database is empty: run/);
  expect(await world.run("select from pg_tables where schemaname = 'public'")).toEqual([]);
  await world.run("create table users (id integer)");
  await expectNotOpened(world, /the database contains tables of another application$/);
  const latin = `${databaseOf(world.url)}_latin`;
  const locale = "encoding latin1 template template0 lc_collate 'C' lc_ctype 'C'";
  await world.run(`create database ${latin} ${locale}`);
  const databaseUrl = world.url.replace("?", "_latin?");
  await expectNotOpened(world, /encoding of the database is LATIN1/, databaseUrl);
  await world.run(`drop database ${latin} with (force)`);
});

test("open creates a primary key for each table, without which a publication of it rejects updates, and lets PostgreSQL reject what makes a response invalid JSON", async (world) => {
  const tablesWithoutKey = `
    select oid::regclass::text as name
    from pg_class
    where relkind = 'r'
      and relnamespace = 'public'::regnamespace
      and not exists (select from pg_index where indrelid = pg_class.oid and indisprimary)
  `;
  expect(await world.run(tablesWithoutKey)).toEqual([]);
  const store = await world.open();
  const { id } = await newUser(store);
  await store.orders.create(orderFields(id), null);
  for (const damage of [
    "users set created_at = 'a\"b'",
    "users set updated_at = '2026-01-01'",
    "orders set currency = 'a\"b'",
    "orders set status = '\"'",
    "orders set created_at = updated_at || '\"'",
  ])
    await expect(world.run(`update ${damage}`), damage).rejects.toThrow("check");
});

test("open uses the database in the URL when PGDATABASE names another, and rejects a newer schema that says that this program must not use it", async (world) => {
  const before = Bun.env["PGDATABASE"];
  Bun.env["PGDATABASE"] = "elsewhere";
  try {
    await newUser(await world.open());
  } finally {
    if (before === undefined) delete Bun.env["PGDATABASE"];
    else Bun.env["PGDATABASE"] = before;
  }
  expect(await world.run("select from users")).toHaveLength(1);
  const newer = migrations.length + 1;
  await world.run(`update user_api set schema_version = ${newer}, oldest_version = ${newer}`);
  const problem = `has version ${newer}, but this program supports versions up to ${newer - 1}`;
  await expectNotOpened(world, new RegExp(problem));
});

test("statistics share a query for the size of the database when they are called at the same time", async (world) => {
  const db = world.connect();
  const kinds: string[] = [];
  const run: Database["run"] = (kind, ...rest) => {
    kinds.push(kind);
    return db.run(kind, ...rest);
  };
  const options = { ...storeOptions, databaseUrl: world.url };
  const store = createStore({ ...db, run }, oneServer, options);
  const all = await Promise.all([1, 2, 3, 4].map(() => store.statistics()));
  for (const { databaseBytes } of all) expect(databaseBytes).toBeGreaterThan(0);
  expect(kinds).toEqual(["background"]);
});

for (const parameters of ["", "&prepare=false"])
  test(`integers are exact when the database rounds floating point, with "${parameters}"`, async (world) => {
    await world.run(`alter database ${databaseOf(world.url)} set extra_float_digits = -3`);
    const store = await world.open({ databaseUrl: world.url + parameters });
    const { id } = await newUser(store);
    const total = 2 ** 53 - 1;
    const items = [{ sku: "a", quantity: 1, unit_price: total }];
    const record = await store.orders.create(orderFields(id, { items, total }), null);
    await world.run(`update orders set id = ${total - 2}, version = ${total - 2}`);
    const order = { ...JSON.parse(record.json), id: total - 2, version: total - 2 };
    expect((await listed(store.orders.list({ limit: 1, offset: 0 }))).rows).toEqual([order]);
    await store.withCopySource(async (source) => {
      for await (const [row] of source.read("orders"))
        expect(row ?? order).toMatchObject({ id: order.id, total });
    });
    await store.orders.update(order.id, setFields({ status: "paid" }), null);
    expect(parsed(await store.orders.get(order.id))).toMatchObject({ version: total - 1, total });
  });

const CURRENT = migrations.length;
const extended = [...migrations, ["create table later (id integer primary key)"]];

test("migrate migrates an older schema once, in a server that writes, and reports the versions, unless a statement fails", async (world) => {
  for (const [mode, create] of [
    ["serve-read-only", false],
    ["read", false],
    ["write", true],
    ["write", false],
  ] as const) {
    const opening = migrate(world.connect(), { mode, create }, extended);
    await expectRejection(opening, "operator", /run `user-api migrate` on this database/);
  }
  const reported: [from: number, to: number][] = [];
  const onMigration = (from: number, to: number) => reported.push([from, to]);
  const start = (all = extended) =>
    migrate(world.connect(), { create: true, mode: "serve", onMigration }, all);
  await expect(start([...extended, ["select 1 / 0"]])).rejects.toThrow("division by zero");
  const version = () => world.run<object>("select schema_version from user_api");
  expect([await version(), reported]).toEqual([[{ schema_version: CURRENT }], []]);
  expect(await world.run("select to_regclass('later') as later")).toEqual([{ later: null }]);
  // At the same time.
  await Promise.all([start(), start()]);
  expect(reported).toEqual([[CURRENT, CURRENT + 1]]);
  expect(await version()).toEqual([{ schema_version: CURRENT + 1 }]);
  expect(await world.run("select from later")).toEqual([]);
});

test("migrate creates the tables once, and reports it, when commands start at the same time and others hold advisory locks", async () => {
  await using world = await makeHarness(true);
  await using _held = await world.hold("select pg_advisory_xact_lock(1969320041)");
  const reported: [from: number, to: number][] = [];
  const onMigration = (from: number, to: number) => reported.push([from, to]);
  const start = () => world.open({ create: true, mode: "write", onMigration });
  await Promise.all([start(), start(), start()]);
  expect(reported).toEqual([[0, CURRENT]]);
});

// Logical replication copies rows and no sequences: the next ids must not be those of other records.
const token = { hash: "a".repeat(64), name: "a", scope: "read", expires_at: null } as const;
const restart = "select setval(seqrelid, seqstart, false) from pg_sequence";
/** The feed is as another server has left it. */
const move = "update change_feed set origin = '{1,1,1}', xid = txid_current()";

for (const damage of [restart, `${restart}; ${move}; delete from orders; delete from users`])
  test(`open waits for running writes, then advances sequences that are behind and warns of each, after ${damage}`, async (world) => {
    const first = await world.open();
    await first.tokens.create(token);
    for (let at = 0; at < 3; at += 1) await newUser(first);
    await first.orders.create(orderFields(1), null);
    // Otherwise it could notice that the feed has moved, and begin another one without changes.
    await first.close();
    await world.run(`${deleteUser(3)}; ${damage}`);
    await using write = await world.hold(`
      insert into tokens (id, hash, name, scope, created_at) values (50, repeat('b', 64), 'b', 'read', 'now')
    `);
    const warnings: string[] = [];
    const opening = world.open({
      databaseUrl: world.url + patient,
      onWarning: (text) => warnings.push(text),
    });
    await world.untilWaiting();
    await write.commit();
    const store = await opening;
    const advanced = warnings.flatMap((text) => /sequence of (\w+) was/.exec(text)?.[1] ?? []);
    expect(advanced).toEqual(["users", "orders", "tokens"]);
    const { id } = await newUser(store);
    expect([id, (await store.orders.create(orderFields(id), null)).id]).toEqual([4, 2]);
    await store.tokens.create({ ...token, hash: "c".repeat(64), name: "c" });
    expect(await world.run("select from tokens where id = 51")).toHaveLength(1);
  });
