import { expect, test } from "bun:test";
import type { ImportResult } from "../../src/domain/bulk.ts";
import type { OrderImport } from "../../src/domain/import-rules.ts";
import { createImportRun } from "../../src/domain/import-run.ts";
import type { Order } from "../../src/domain/order.ts";
import type { Store } from "../../src/domain/store.ts";
import type { User } from "../../src/domain/user.ts";
import { listed } from "../support/listed.ts";
import {
  all,
  newUser,
  type Open,
  oddTexts,
  openWithClock,
  orderFields,
  parsed,
  userFields,
} from "./open.ts";

const created: ImportResult = { outcome: "created" };
const unchanged: ImportResult = { outcome: "unchanged" };
const rejected = (reason: string): ImportResult => ({ outcome: "rejected", reason });
/** Of a record that an update can change. */
const existing = (reason: string) => rejected(`${reason} (--update changes it)`);
const createdAt = "2020-01-02T03:04:05.678Z";
const updatedAt = "2021-01-02T03:04:05.678Z";

function oldUser(id: number, fields: Partial<User> = {}): User {
  const times = { version: 3, created_at: createdAt, updated_at: updatedAt };
  return { id, ...userFields({ email: `${id}@example.com` }), ...times, ...fields };
}

function oldOrder(id: number, userId: number, fields: Partial<Order> = {}): Order {
  const times = { version: 2, created_at: createdAt, updated_at: updatedAt };
  return { id, ...orderFields(userId), status: "paid", ...times, ...fields };
}

const importUser = async (store: Store, user: User) => (await store.bulk.users.import([user]))[0];
const importOrder = async (store: Store, order: OrderImport) =>
  (await store.bulk.orders.import([order]))[0];

async function idsOf(store: Store, list: "users" | "orders", userId?: number): Promise<number[]> {
  const query = userId === undefined ? all : { ...all, user_id: userId };
  const { rows, total } = await listed(store[list].list(query));
  expect(rows).toHaveLength(total);
  return rows.map(({ id }) => id);
}

export function importContract(open: Open): void {
  test("import keeps ids, versions and times when records have them", async () => {
    await using it = await openWithClock(open);
    const users = oddTexts.map((name, at) => oldUser(at + 1, { name, metadata: { [name]: name } }));
    const results = await it.store.bulk.users.import(users);
    expect(results).toEqual(users.map(() => created));
    expect((await listed(it.store.users.list(all))).rows).toEqual(users);
    const orders = [oldOrder(1, 3), oldOrder(2, 1, { status: "canceled", metadata: { a: "b" } })];
    expect(await it.store.bulk.orders.import(orders)).toEqual([created, created]);
    expect((await listed(it.store.orders.list(all))).rows).toEqual(orders);
    expect((await it.store.orders.list({ ...all, status: "paid" })).total).toBe(1);
    expect(await it.store.check()).toEqual([]);
  });

  test("import assigns the next ids, version 1 and the current time when records have none", async () => {
    await using it = await openWithClock(open);
    await importUser(it.store, oldUser(10));
    const fields = userFields({ name: "New", metadata: { a: "b" } });
    expect(await it.store.bulk.users.import([fields])).toEqual([created]);
    const time = it.clock.time.toISOString();
    const fresh = { id: 11, version: 1, created_at: time, updated_at: time };
    expect(parsed(await it.store.users.get(11))).toEqual({ ...fields, ...fresh });
    const { refunded, status, ...rest } = orderFields(11);
    const order = { ...rest, reference: "a:1" };
    expect(await importOrder(it.store, order)).toEqual(created);
    const placed = { ...order, refunded, status, ...fresh, id: 1 };
    expect(parsed(await it.store.orders.get(1))).toEqual(placed);
    expect(await it.store.check()).toEqual([]);
  });

  test("import returns unchanged when an equal record exists", async () => {
    await using it = await openWithClock(open);
    const user = oldUser(7, { name: "A", metadata: { a: "1", b: "2" } });
    const fields = userFields({ metadata: { a: "1", b: "2" } });
    const again = { ...fields, metadata: { b: "2", a: "1" } };
    const users = [user, { ...user, metadata: { b: "2", a: "1" } }, fields, again];
    const results = await it.store.bulk.users.import(users);
    expect(results).toEqual([created, unchanged, created, unchanged]);
    const order = oldOrder(7, 7);
    const keyed = { ...orderFields(7), reference: "a:1" };
    const orders = [order, order, keyed, keyed];
    const expected = [created, unchanged, created, unchanged];
    expect(await it.store.bulk.orders.import(orders)).toEqual(expected);
    expect(await it.store.bulk.users.import(users)).toEqual(users.map(() => unchanged));
    expect(await it.store.bulk.orders.import(orders)).toEqual(orders.map(() => unchanged));
    expect(await idsOf(it.store, "users")).toEqual([7, 8]);
    expect(await idsOf(it.store, "orders")).toEqual([7, 8]);
  });

  const userChanges: Partial<User>[] = [
    { email: "Seven@example.com" },
    { name: "B" },
    { metadata: { a: "2" } },
    { version: 4 },
    { created_at: updatedAt },
    { updated_at: createdAt },
  ];
  const orderChanges: Partial<Order>[] = [
    { user_id: 8 },
    { currency: "USD" },
    { items: [{ sku: "A-2", quantity: 1, unit_price: 100 }] },
    { status: "shipped" },
    { metadata: { a: "2" } },
    { version: 4 },
    { created_at: updatedAt },
    { updated_at: createdAt },
  ];

  test("import rejects a record when a different one has its id", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    const user = oldUser(7, { email: "seven@example.com", metadata: { a: "1" } });
    await store.bulk.users.import([user, oldUser(8)]);
    await importOrder(store, oldOrder(7, 7));
    for (const change of userChanges)
      expect(await importUser(store, { ...user, ...change }), JSON.stringify(change)).toEqual(
        existing("user 7 already exists with different values"),
      );
    for (const change of orderChanges)
      expect(await importOrder(store, oldOrder(7, 7, change)), JSON.stringify(change)).toEqual(
        existing("order 7 already exists with different values"),
      );
    expect((await listed(store.users.list(all))).rows).toEqual([user, oldUser(8)]);
    expect((await listed(store.orders.list(all))).rows).toEqual([oldOrder(7, 7)]);
  });

  test("import stores the records that it does not reject, and in a dry run nothing, with the same results", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    const { bulk } = store;
    const user = await newUser(store);
    const known = oldUser(5, { email: "5@B.CD", metadata: { a: "1", b: "2" } });
    const added = userFields({ email: "new@example.com", metadata: { a: "1", b: "2" } });
    const metadata = { b: "2", a: "1" };
    const batches = [
      [known, known, user],
      [oldUser(7, { email: user.email, reference: "7" }), added, { ...known, metadata }],
      // The previous record would have been assigned this id.
      [oldUser(6), { ...added, metadata }, { ...known, version: 7 }, oldUser(2 ** 25), known],
    ];
    const keyed = { ...orderFields(1), reference: "a:1" };
    const orderBatches = [
      [oldOrder(9, 1), oldOrder(9, 1), keyed],
      [oldOrder(9, 1), keyed, { ...keyed, currency: "USD" }],
      [oldOrder(9, 1), oldOrder(9, 1, { version: 7 }), oldOrder(4, 99)],
    ];
    async function importAll(dryRun: boolean): Promise<ImportResult[]> {
      const results: ImportResult[] = [];
      for (const [table, all] of Object.entries({ users: batches, orders: orderBatches })) {
        const options = { dryRun, run: createImportRun() };
        for (const [at, batch] of all.entries()) {
          const lines = [1, 2, 3, 4, 5].map((line) => line + 3 * at);
          const given = [batch as never, { ...options, lines }] as const;
          results.push(...(await bulk[table as "users" | "orders"].import(...given)));
        }
      }
      return results;
    }
    const expected = await importAll(true);
    expect((await listed(store.users.list(all))).rows).toEqual([user]);
    expect((await store.orders.list(all)).total).toBe(0);
    expect((await newUser(store)).id).toBe(2);
    await store.users.remove(2, null);
    expect(await importAll(false)).toEqual(expected);
    expect(await idsOf(store, "users")).toEqual([1, 5, 6]);
    const differ = (field: string, lines: string) =>
      rejected(`${field} is that of lines ${lines}, which have different values`);
    expect(expected).toEqual([
      ...[created, unchanged, unchanged],
      ...[differ("email", "3 and 4"), created, unchanged],
      ...[differ("id", "5 and 7"), differ("id", "5 and 7"), differ("id", "1 and 9")],
      rejected(`id must be at most ${2 ** 24} beyond the last one, 6`),
      differ("id", "1 and 9"),
      ...[created, unchanged, created],
      ...[unchanged, differ("reference", "3 and 6"), differ("reference", "3 and 6")],
      ...[differ("id", "1 and 8"), differ("id", "1 and 8")],
      rejected("user_id must be an existing user"),
    ]);
    expect(await store.check()).toEqual([]);
  });

  test("import finds the user of an order by email", async () => {
    await using it = await openWithClock(open);
    await importUser(it.store, oldUser(7, { email: "Ann@example.com" }));
    const { user_id, ...fields } = orderFields(7);
    const known = { ...fields, user_email: "ann@EXAMPLE.com", reference: "a:1" };
    const unknown = { ...fields, user_email: "bob@example.com", reference: "a:2" };
    for (const dryRun of [true, false]) {
      expect(await it.store.bulk.orders.import([known, unknown], { dryRun })).toEqual([
        created,
        rejected("user_email must be the email of an existing user"),
      ]);
    }
    expect(parsed(await it.store.orders.get(1))).toMatchObject({ user_id });
    expect(await importOrder(it.store, known)).toEqual(unchanged);
  });
}
