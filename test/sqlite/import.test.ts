// Imports of any ids in any order, compared with a model: pages and totals must stay exact.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { type Order, type OrderStatus, orderStatuses } from "../../src/domain/order.ts";
import type { Store } from "../../src/domain/store.ts";
import type { User } from "../../src/domain/user.ts";
import { expectPage } from "../contract/expect-page.ts";
import { orderFields, userFields } from "../contract/open.ts";
import { makeDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { makeRandom } from "../support/random.ts";
import { openDatabase } from "./open-database.ts";

const time = "2020-01-02T03:04:05.678Z";
const given = { version: 1, created_at: time, updated_at: time };

type Random = (below: number) => number;

async function openStore() {
  const directory = makeDirectory();
  const path = directory.at("a.db");
  const store = await openDatabase(path);
  return {
    store,
    path,
    async [Symbol.asyncDispose]() {
      await store.close();
      directory[Symbol.dispose]();
    },
  };
}

/** Random ids: below the last one, next to it, or beyond it by gaps as large as each level of buckets. */
function someIds(last: number, random: Random): number[] {
  const leaps = [1, 2, 70, 5000, 300_000];
  let id = random(2) === 0 ? last : random(last + 1);
  return Array.from({ length: 1 + random(150) }, () => {
    const leap = leaps[random(40) === 0 ? random(leaps.length) : random(2)] ?? 1;
    id = random(10) === 0 ? 1 + random(last + 10) : id + 1 + random(leap);
    return id;
  });
}

/** Expects the exact total, and the right pages at the offsets where a count index could be off by one. */
async function expectPages(
  store: Store,
  table: "users" | "orders",
  ids: number[],
  random: Random,
  filter: { status?: OrderStatus } = {},
) {
  const offsets = [0, 1, 63, 64, 65, ids.length - 2, ids.length, random(ids.length + 1)];
  for (const offset of offsets.filter((at) => at >= 0)) {
    await expectPage(store[table].list, ids, { ...filter, limit: 3, offset });
  }
}

for (const seed of isLong ? [3, 11] : [3]) {
  test(`import leaves a consistent database when ids are random (seed ${seed})`, async () => {
    const random = makeRandom(seed);
    await using it = await openStore();
    const { store } = it;
    const users = new Set<number>();
    const orders = new Map<number, number>();
    const statuses = new Map<number, OrderStatus>();
    let lastUser = 0;
    let lastOrder = 0;

    async function importUsers(): Promise<void> {
      const ids = someIds(lastUser, random);
      const batch: User[] = ids.map((id) => ({
        id,
        ...userFields({ email: `${id}@b.cd` }),
        ...given,
      }));
      await store.bulk.users.import(batch);
      for (const id of ids) users.add(id);
      lastUser = Math.max(lastUser, ...ids);
    }
    async function createUser(): Promise<void> {
      const record = await store.users.create(userFields(), null);
      expect(record.id).toBe(lastUser + 1);
      lastUser = record.id;
      users.add(record.id);
    }
    async function removeUser(): Promise<void> {
      const id = [...users][random(users.size)] ?? 0;
      if ([...orders.values()].includes(id)) return;
      await store.users.remove(id, null);
      users.delete(id);
    }
    async function importOrders(): Promise<void> {
      const ids = someIds(lastOrder, random);
      const of = [...users].slice(0, 3);
      const batch: Order[] = ids.map((id) => ({
        id,
        ...orderFields(of[random(of.length)] ?? 0),
        refunded: 0,
        status: orderStatuses[random(5)] ?? "paid",
        ...given,
      }));
      const results = await store.bulk.orders.import(batch);
      for (const [at, { id, user_id, status }] of batch.entries()) {
        if (results[at]?.outcome !== "created") continue;
        orders.set(id, user_id);
        statuses.set(id, status);
      }
      lastOrder = Math.max(lastOrder, ...orders.keys());
    }
    async function placeOrder(): Promise<void> {
      const userId = [...users][0] ?? 0;
      const record = await store.orders.create(orderFields(userId), null);
      expect(record.id).toBe(lastOrder + 1);
      lastOrder = record.id;
      orders.set(record.id, userId);
      statuses.set(record.id, "pending");
    }

    await importUsers();
    const steps = [importUsers, createUser, removeUser, importOrders, placeOrder];
    for (let step = 0; step < 40; step += 1) {
      await steps[random(steps.length)]?.();
      await nextTurn();
      expect([step, await store.check()]).toEqual([step, []]);
      const ascending = (ids: Iterable<number>) => [...ids].sort((left, right) => left - right);
      await expectPages(store, "users", ascending(users), random);
      await expectPages(store, "orders", ascending(orders.keys()), random);
      for (const status of orderStatuses) {
        const ids = ascending(statuses.keys()).filter((id) => statuses.get(id) === status);
        await expectPages(store, "orders", ids, random, { status });
      }
      for (const userId of new Set(orders.values())) {
        const ids = ascending([...orders].filter(([, of]) => of === userId).map(([id]) => id));
        await expectPage(store.orders.list, ids, { user_id: userId, limit: 1000, offset: 0 });
      }
    }
    // The random steps have created enough rows.
    expect(Math.min(users.size, orders.size)).toBeGreaterThan(50);
  });
}

test("a dry import does not block checkpoints when called repeatedly", async () => {
  await using it = await openStore();
  using db = new Database(it.path);
  const checkpoint = db.prepare<{ busy: number }, []>("pragma wal_checkpoint(truncate)");
  for (let attempt = 0; attempt < 2; attempt += 1) {
    await it.store.users.create(userFields(), null);
    await it.store.bulk.users.import([userFields()], { dryRun: true });
    expect(checkpoint.get()).toMatchObject({ busy: 0 });
  }
});
