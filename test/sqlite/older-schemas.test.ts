// Databases with an older schema version.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import type { Order } from "../../src/order.ts";
import { migrate, migrations, SCHEMA_VERSION } from "../../src/sqlite/migrate.ts";
import { restoreSqlite } from "../../src/sqlite/restore.ts";
import type { Store } from "../../src/store.ts";
import { orderFields, setPaid, time } from "../contract/open.ts";
import { makeDirectory, type TemporaryDirectory } from "../directory.ts";
import { expectRejection } from "../expect-error.ts";
import { hashOf, traceOf } from "../trace.ts";
import { never, now } from "./make-backup.ts";
import { openDatabase, query, runSql } from "./open-database.ts";

const olderVersions = Array.from({ length: SCHEMA_VERSION - 1 }, (_, before) => before + 1);

/** Creates a database with two users, a pending order and a paid one. @returns its path */
function makeOlder(directory: TemporaryDirectory, version: number): string {
  const path = directory.at("a.db");
  using db = new Database(path, { create: true });
  db.run("pragma journal_mode = wal");
  migrate(db, migrations.slice(0, version));
  db.run(`
    insert into users (email, email_key, metadata, version, created_at, updated_at)
    values ('a@b.cd', 'a@b.cd', '{}', 1, '${time}', '${time}'),
      ('b@b.cd', 'b@b.cd', '{}', 1, '${time}', '${time}')
  `);
  db.run(`
    insert into orders (user_id, user_position, currency, items, total, status, metadata, version,
      created_at, updated_at)
    select id, 1, 'EUR', '[{"sku":"A-1","quantity":1,"unit_price":100}]', 100, 'pending', '{}', 1,
      '${time}', '${time}'
    from users
  `);
  db.run("update orders set status = 'paid', version = 2 where id = 2");
  return path;
}

function versionOf(path: string): unknown {
  return query(path, "pragma user_version")[0];
}

async function totalsOf({ orders }: Store): Promise<number[]> {
  const totals: number[] = [];
  for (const status of [undefined, "pending", "paid", "shipped"] as const) {
    const { total } = await orders.list({ limit: 1, offset: 0, ...(status && { status }) });
    totals.push(total);
  }
  return totals;
}

/** Expects that every kind of write changes the totals by one. */
async function expectConsistent(store: Store): Promise<void> {
  expect(await totalsOf(store)).toEqual([2, 1, 1, 0]);
  await store.orders.place(orderFields(1), null);
  const shipped: Order = {
    ...orderFields(2),
    id: 7,
    status: "shipped",
    version: 3,
    created_at: time,
    updated_at: time,
  };
  expect(await store.bulk.orders.import([shipped], false)).toMatchObject([{ outcome: "created" }]);
  await store.orders.update(1, setPaid, null);
  expect(await totalsOf(store)).toEqual([4, 1, 2, 1]);
  expect(await store.check()).toEqual([]);
}

for (const version of olderVersions) {
  test(`a database of version ${version} is migrated, and a copy kept, when a server opens it`, async () => {
    using directory = makeDirectory();
    const path = makeOlder(directory, version);
    const migrated: [from: number, to: number][] = [];
    const onMigration = (from: number, to: number) => migrated.push([from, to]);
    const store = await openDatabase(path, { create: false, now, onMigration });
    await expectConsistent(store);
    await store.close();
    expect(migrated).toEqual([[version, SCHEMA_VERSION]]);
    expect(versionOf(path)).toBe(SCHEMA_VERSION);
    expect(versionOf(`${path}.v${version}`)).toBe(version);
    const kept = query(`${path}.v${version}`, "select id, status from orders order by id");
    expect(kept).toEqual([1, "pending", 2, "paid"]);
  });

  test(`a database of version ${version} is rejected and not changed when a command would write to it, or a server only reads it`, async () => {
    using directory = makeDirectory();
    const path = makeOlder(directory, version);
    const before = hashOf(path);
    const needs = `this program needs version ${SCHEMA_VERSION}: run \`user-api migrate\` on this database`;
    const why = `the schema has version ${version}, but ${needs}`;
    for (const options of [
      { create: false, mode: "write" },
      { create: true, mode: "write" },
      { create: false, mode: "serve-read-only" },
    ] as const) {
      const opening = openDatabase(path, options);
      await expectRejection(opening, "operator", `Cannot open ${path}: ${why}`);
    }
    expect(readdirSync(directory.path)).toEqual(["a.db"]);
    expect(hashOf(path)).toBe(before);
  });

  test(`a database of version ${version} is read without a trace when a command only reads`, async () => {
    using directory = makeDirectory();
    using elsewhere = makeDirectory();
    const path = makeOlder(directory, version);
    const before = traceOf(directory.path);
    const store = await openDatabase(path, { create: false, mode: "read" });
    expect(await totalsOf(store)).toEqual([2, 1, 1, 0]);
    expect(await store.check()).toEqual([]);
    expect(await store.bulk.users.exportPage(0, 10, "id")).toHaveLength(2);
    expect(await store.tokens.list()).toEqual([]);
    expect(await store.withCopySource((source) => source.count("orders"))).toBe(2);
    const copy = elsewhere.at("copy.db");
    expect(await store.backUp(copy, () => {}, never)).toMatchObject({ users: 2, orders: 2 });
    await store.close();
    expect(traceOf(directory.path)).toEqual(before);
    expect(versionOf(copy)).toBe(version);
  });

  test(`a database of version ${version} is rejected when a command cannot read it`, async () => {
    using directory = makeDirectory();
    const path = makeOlder(directory, version);
    runSql(path, "alter table idempotency_keys rename column record to response");
    const opening = openDatabase(path, { create: false, mode: "read" });
    await expectRejection(opening, "operator", /run `user-api migrate` on this database$/);
  });

  test(`a backup of version ${version} keeps its version when it is restored, and the next server migrates it`, async () => {
    using directory = makeDirectory();
    const from = makeOlder(directory, version);
    const databaseUrl = directory.at("new.db");
    const contents = await restoreSqlite({ from, databaseUrl, now });
    expect(contents).toMatchObject({ users: 2, orders: 2, previousPath: null });
    expect([versionOf(from), versionOf(databaseUrl)]).toEqual([version, version]);
    const store = await openDatabase(databaseUrl, { now });
    await expectConsistent(store);
    await store.close();
    expect(versionOf(databaseUrl)).toBe(SCHEMA_VERSION);
  });
}
