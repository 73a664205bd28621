// Error messages for the operator are one line without the password.
import { describe, expect, test } from "bun:test";
import type { StoreOptions } from "../../src/domain/store.ts";
import { severalServers } from "../../src/postgres/server/citus.ts";
import { connect } from "../../src/postgres/server/connection.ts";
import { migrations } from "../../src/postgres/whole/migrate.ts";
import { newUser, orderFields, parsed, setFields } from "../contract/open.ts";
import { expectRejection } from "../support/expect-error.ts";
import { listed } from "../support/listed.ts";
import { cluster, type Harness, makeHarness, tablesWithoutKey } from "./postgres-harness.ts";

function change(
  url: string,
  parts: Partial<Record<"port" | "pathname" | "search" | "username" | "password", string>>,
) {
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

describe.if(cluster !== null)("open", () => {
  test("rejects with a one-line message when it cannot connect", async () => {
    await using world = await makeHarness();
    const wrong: [Parameters<typeof change>[1], RegExp][] = [
      [{ port: "1" }, /: connection refused, or unknown host$/],
      [
        { pathname: "/nowhere" },
        /\/nowhere: the database does not exist: create it with `createdb`$/,
      ],
      [{ username: "stranger" }, /the server does not let this user log in from this host$/],
      [{ search: "sslmode=require" }, /the URL requires TLS, but the server does not support it$/],
      [{ search: "sslmode=nonsense" }, /sslmode/],
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

  test("connects each process with a name of its own, apart from servers behind a pooler", async () => {
    await using world = await makeHarness();
    const nameOf = async (parameters: string, mode: StoreOptions["mode"]) => {
      const db = connect({ databaseUrl: world.url + parameters, mode });
      const read = "select current_setting('application_name') as name";
      const row = await db.run("read", (session) => session.first<{ name: string }>(read));
      await db.close();
      return row?.name;
    };
    const names = [await nameOf("", "serve"), await nameOf("&prepare=false", "read")];
    expect(new Set(names).size).toBe(2);
    for (const name of names) expect(name).toMatch(/^user-api [\da-f]{8}$/);
    expect(await nameOf("&prepare=false", "serve")).toBe("user-api");
    expect(await nameOf("&application_name=a", "serve")).toBe("a");
    expect(await nameOf("&prepare=false&application_name=a", "read")).toBe("a");
  });

  test("sets what the role has after the statements of docs/scaling-out.md", async () => {
    await using world = await makeHarness();
    const page = await Bun.file(`${import.meta.dir}/../../docs/scaling-out.md`).text();
    const statements = page.match(/^alter role ann in database user_api set .*$/gm) ?? [];
    const { username, pathname } = new URL(world.url);
    const target = `alter role ${username} in database ${pathname.slice(1)} `;
    for (const statement of statements) {
      await world.run(statement.replace("alter role ann in database user_api ", target));
    }
    const settingsOf = (databaseUrl: string) =>
      world.connect(databaseUrl).run("read", (session) => session.all(allSettings));
    const ofRole = await settingsOf(change(world.url, { search: "prepare=false" }));
    expect(ofRole).toEqual(await settingsOf(world.url));
    // Other roles keep theirs, also in this database.
    expect(await world.run("select from pg_db_role_setting where setrole = 0::oid")).toEqual([]);
  });

  test("sets what suits several servers when the URL does not", async () => {
    await using world = await makeHarness();
    const name = new URL(world.url).pathname.slice(1);
    await world.run(`alter database "${name}" set plan_cache_mode = force_generic_plan`);
    const databaseUrl = `${world.url}&citus.max_adaptive_executor_pool_size=4`;
    const db = connect({ databaseUrl }, severalServers.settings);
    const names = Object.keys(severalServers.settings);
    const show = names.map((name) => `current_setting('${name}', true) as "${name}"`).join();
    const shown = await db.run("read", (session) => session.first<object>(`select ${show}`));
    await db.close();
    expect(shown).toEqual({
      "citus.enable_binary_protocol": "off",
      "citus.max_adaptive_executor_pool_size": "4",
      "citus.propagate_set_commands": "local",
      plan_cache_mode: "auto",
    });
  });

  test("warns about settings that a pooler has rejected and the role does not have", async () => {
    await using world = await makeHarness();
    const name = new URL(world.url).pathname.slice(1);
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
    await world.run(`alter database "${name}" set synchronous_commit = off`);
    const danger =
      "synchronous_commit is off in PostgreSQL: writes that were acknowledged can be lost";
    expect(await warningsOf("prepare=false")).toEqual([danger, role]);
    // A connection sets it, unless the URL does.
    expect(await warningsOf("")).toEqual([]);
    expect(await warningsOf("synchronous_commit=off")).toEqual([danger]);
  });

  test("rejects an empty database when create is false, and one with tables of another application", async () => {
    await using world = await makeHarness(true);
    await expectRejection(world.open({ create: false }), "operator", /the database is empty: run/);
    expect(await world.run("select from pg_tables where schemaname = 'public'")).toEqual([]);
    await world.run("create table users (id integer)");
    await expectNotOpened(world, /the database contains tables of another application$/);
  });

  test("works when a publication has all tables, each of which has a primary key", async () => {
    await using world = await makeHarness();
    expect(await world.run(tablesWithoutKey)).toEqual([]);
    await world.run("create publication everything for all tables");
    const store = await world.open();
    await store.checkUsable();
    const { id } = await newUser(store);
    await newUser(store);
    await store.users.remove(id, null);
    expect((await store.changes.list({ limit: 9, offset: 0 })).total).toBe(3);
    await store.changes.deleteExpired(new Date());
    expect(await store.check()).toEqual([]);
  });

  test("lets PostgreSQL reject what makes a response invalid JSON", async () => {
    await using world = await makeHarness();
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

  test("uses a newer schema with more columns, and rejects one that says that this program must not", async () => {
    await using world = await makeHarness();
    const newer = migrations.length + 1;
    for (const table of ["users", "orders", "tokens", "changes", "idempotency_keys"])
      await world.run(`alter table ${table} add column later text`);
    await world.run(`update user_api set schema_version = ${newer}`);
    const store = await world.open();
    const key = { owner: "a", key: "a", fingerprint: "f" };
    const user = await newUser(store);
    const order = await store.orders.create(orderFields(user.id), key);
    expect(await store.orders.create(orderFields(user.id), key)).toMatchObject({ replayed: true });
    const paid = await store.orders.update(order.id, setFields({ status: "paid" }), null);
    expect((await listed(store.orders.list({ limit: 9, offset: 0 }))).rows).toEqual([parsed(paid)]);
    expect(await store.bulk.users.import([user])).toEqual([{ outcome: "unchanged" }]);
    await store.withCopySource(async (source) => {
      for (const table of ["users", "orders", "changes"] as const)
        for await (const [row] of source.read(table)) expect(row).not.toHaveProperty("later");
    });
    expect(await store.check()).toEqual([]);
    await world.run(`update user_api set oldest_version = ${newer}`);
    const problem = `has version ${newer}, but this program supports versions up to ${newer - 1}`;
    await expectNotOpened(world, new RegExp(problem));
  });

  test("rejects a database when its encoding is not UTF-8", async () => {
    await using world = await makeHarness(true);
    const name = `latin_${crypto.randomUUID().replaceAll("-", "")}`;
    await world.run(
      `create database ${name} encoding latin1 template template0 lc_collate 'C' lc_ctype 'C'`,
    );
    const databaseUrl = Object.assign(new URL(world.url), { pathname: `/${name}` }).href;
    await expectNotOpened(world, /the encoding of the database is LATIN1/, databaseUrl);
    await cluster?.dropDatabase(databaseUrl);
  });

  test("uses the database in the URL when PGDATABASE names another", async () => {
    await using world = await makeHarness();
    const before = Bun.env["PGDATABASE"];
    Bun.env["PGDATABASE"] = "elsewhere";
    try {
      await newUser(await world.open());
    } finally {
      if (before === undefined) delete Bun.env["PGDATABASE"];
      else Bun.env["PGDATABASE"] = before;
    }
    expect(await world.run("select from users")).toHaveLength(1);
  });

  test.each(["", "&prepare=false"])(
    "returns exact integers when the database rounds floating point, with %p",
    async (parameters) => {
      await using world = await makeHarness();
      const name = new URL(world.url).pathname.slice(1);
      await world.run(`alter database "${name}" set extra_float_digits = -3`);
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
    },
  );
});
