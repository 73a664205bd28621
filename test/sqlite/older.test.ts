// Databases with an older schema version.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import type { Order } from "../../src/order.ts";
import { migrate, migrations, SCHEMA_VERSION } from "../../src/sqlite/migrate.ts";
import { restoreSqlite } from "../../src/sqlite/restore.ts";
import type { Store } from "../../src/store.ts";
import { orderFields } from "../contract/open.ts";
import { makeDirectory, type TemporaryDirectory } from "../directory.ts";
import { openDatabase } from "./open-database.ts";

const now = () => new Date("2026-11-20T18:57:03.120Z");
const time = now().toISOString();
const olderVersions = Array.from({ length: SCHEMA_VERSION - 1 }, (_, before) => before + 1);

function open(databaseUrl: string, exclusive: boolean): Promise<Store> {
  return openDatabase(databaseUrl, { create: false, exclusive, now });
}

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
  using db = new Database(path, { readonly: true });
  return db.prepare("pragma user_version").values()[0]?.[0];
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
  await store.orders.update(1, () => ({ status: "paid", metadata: {} }), null);
  expect(await totalsOf(store)).toEqual([4, 1, 2, 1]);
  expect(await store.check()).toEqual([]);
}

for (const version of olderVersions) {
  test.each([
    ["a server opens it", true],
    ["a command opens it", false],
  ])(
    `a database of version ${version} is migrated, and a copy kept, when %s`,
    async (_, exclusive) => {
      using directory = makeDirectory();
      const path = makeOlder(directory, version);
      const store = await open(path, exclusive);
      await expectConsistent(store);
      await store.close();
      expect(versionOf(path)).toBe(SCHEMA_VERSION);
      expect(versionOf(`${path}.v${version}`)).toBe(version);
      using old = new Database(`${path}.v${version}`, { readonly: true });
      expect(old.prepare("select id, status from orders order by id").values()).toEqual([
        [1, "pending"],
        [2, "paid"],
      ]);
    },
  );

  test(`a backup of version ${version} is migrated in the new database, and not changed, when it is restored`, async () => {
    using directory = makeDirectory();
    const from = makeOlder(directory, version);
    const databaseUrl = directory.at("new.db");
    const contents = await restoreSqlite({ from, databaseUrl, now });
    expect(contents).toMatchObject({ users: 2, orders: 2, previousPath: null });
    expect(versionOf(from)).toBe(version);
    const store = await open(databaseUrl, true);
    await expectConsistent(store);
    await store.close();
    expect(readdirSync(directory.path).filter((name) => name.includes(".v"))).toEqual([]);
  });
}
