// The change feed: each change once, with consecutive ids, in the order of commits.
import { expect, test } from "bun:test";
import type { Change, ChangeQuery } from "../../src/domain/change.ts";
import { type Order, patchOrder } from "../../src/domain/order.ts";
import type { Store } from "../../src/domain/store.ts";
import type { User } from "../../src/domain/user.ts";
import { expectRejection } from "../support/expect-error.ts";
import { ifMatch } from "../support/preconditions.ts";
import {
  all,
  newUser,
  type Open,
  openWithClock,
  orderFields,
  parsed,
  rename,
  userFields,
} from "./open.ts";

const DAY_MS = 24 * 60 * 60 * 1000;

/** `list` throws on SQLite and rejects on PostgreSQL. */
async function list(store: Store, query: Partial<ChangeQuery> = {}) {
  return store.changes.list({ ...all, ...query });
}

async function pageOf(store: Store, query: Partial<ChangeQuery> = {}) {
  const { records, total, first, last, feed } = await list(store, query);
  const changes: Change[] = JSON.parse(`[${records}]`);
  return { changes, total, first, last, feed };
}

async function changesOf(store: Store, query: Partial<ChangeQuery> = {}): Promise<Change[]> {
  return (await pageOf(store, query)).changes;
}

async function expectDense(store: Store, count: number): Promise<void> {
  const { changes, ...state } = await pageOf(store);
  expect(changes.map(({ id }) => id)).toEqual(Array.from({ length: count }, (_, at) => at + 1));
  expect(state).toMatchObject({ total: count, first: 1, last: count });
  expect(await store.check()).toEqual([]);
}

/** Creates users, whose changes are the only ones. */
async function fill(store: Store, count: number): Promise<void> {
  for (let at = 0; at < count; at += 1) await newUser(store);
}

export function changesContract(open: Open): void {
  test("an update that leaves every field as it is returns the record and writes nothing, alone and with others", async () => {
    await using it = await openWithClock(open);
    const { users, orders } = it.store;
    const other = await newUser(it.store);
    const reversed = (metadata: User["metadata"]) =>
      Object.fromEntries(Object.entries(metadata).reverse());
    const sameUser = (user: User) => ({ ...user, metadata: reversed(user.metadata) });
    const sameOrder = (order: Order) =>
      patchOrder(order, { status: "pending", metadata: reversed(order.metadata) });
    for (const [at, text] of ["a", "漢".repeat(5000)].entries()) {
      const metadata = { text, more: "1" };
      const user = await users.create(userFields({ name: "Ann", metadata }), null);
      const order = await orders.create(orderFields(user.id, { metadata }), null);
      it.pass(1000);
      const together = await Promise.all([
        users.update(user.id, sameUser, null),
        orders.update(order.id, sameOrder, ifMatch(1)),
        users.update(other.id, rename, null),
      ]);
      expect<unknown[]>(together.slice(0, 2)).toEqual([user, order]);
      expect(await users.update(user.id, sameUser, ifMatch(1))).toEqual(user);
      await expectRejection(users.update(user.id, sameUser, ifMatch(2)), "version_mismatch");
      await expectRejection(orders.update(order.id, sameOrder, ifMatch(2)), "version_mismatch");
      expect<unknown>([await users.get(user.id), await orders.get(order.id)]).toEqual([
        user,
        order,
      ]);
      await expectDense(it.store, 4 + 3 * at);
    }
  });

  test("changes.list has the records as they are now, large ones between others, when they are included", async () => {
    await using it = await openWithClock(open);
    const large = { text: "a".repeat(40_000) };
    const owner = await newUser(it.store, { metadata: large });
    for (const metadata of [{}, large, {}, large, large])
      await it.store.orders.create(orderFields(owner.id, { metadata }), null);
    const gone = await newUser(it.store);
    await it.store.users.update(owner.id, (fields) => ({ ...fields, name: "Ann" }), null);
    await it.store.users.remove(gone.id, null);
    const changes = await changesOf(it.store, { include: "record" });
    const { users, orders } = it.store;
    const stored = await Promise.all(
      changes.map(async ({ type, record_id }) =>
        type.startsWith("user.")
          ? parsed(await users.get(record_id))
          : parsed(await orders.get(record_id)),
      ),
    );
    expect(stored).toHaveLength(9);
    expect(changes.map(({ record }) => record)).toEqual(stored as any);
    const plain = changes.map(({ record: _, ...change }) => change);
    expect(plain).toEqual(await changesOf(it.store));
  });

  test("an import records each of many records once, and changes.deleteExpired deletes more changes than a transaction has", async () => {
    await using it = await openWithClock(open);
    const users = Array.from({ length: 6980 }, () => userFields());
    // Few at the same time, because a create waits for an import for a second at most.
    await Promise.all([it.store.bulk.users.import(users.slice(0, 500)), fill(it.store, 20)]);
    await it.store.bulk.users.import(users.slice(500));
    const seen = new Set<number>();
    for (let after = 0; after < 7000; after += 1000) {
      const changes = await changesOf(it.store, { after });
      expect(changes[0]?.id).toBe(after + 1);
      for (const { record_id } of changes) seen.add(record_id);
    }
    expect(seen.size).toBe(7000);
    it.pass(DAY_MS);
    const filled = fill(it.store, 3);
    while (await it.store.changes.deleteExpired(it.clock.time));
    await filled;
    const { total, first, last } = await list(it.store);
    expect(last).toBe(7003);
    // The newest of the expired ones stays if it was the newest of all.
    expect(first).toBeWithin(7000, 7002);
    expect(total).toBe(last - first + 1);
    expect(await it.store.check()).toEqual([]);
  });

  test("changes.subscribe calls each listener after a change, until it is disposed of", async () => {
    await using it = await openWithClock(open);
    const woken = Promise.withResolvers<void>();
    const check = async () => {
      if ((await list(it.store)).last > 0) woken.resolve();
    };
    using _first = it.store.changes.subscribe(() => void check());
    let calls = 0;
    const count = () => {
      calls += 1;
    };
    it.store.changes.subscribe(count)[Symbol.dispose]();
    const seen = Promise.withResolvers<void>();
    using _other = it.store.changes.subscribe(seen.resolve);
    await newUser(it.store);
    await Promise.all([woken.promise, seen.promise]);
    expect(calls).toBe(0);
  });
}
