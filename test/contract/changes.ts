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
  setFields,
  time,
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

async function idsOf(store: Store, query: Partial<ChangeQuery> = {}): Promise<number[]> {
  return (await changesOf(store, query)).map(({ id }) => id);
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

  test("each write records one change with the record, its version and status, the token and the time", async () => {
    await using it = await openWithClock(open);
    const { users, orders } = it.store;
    const user = parsed(await users.create(userFields(), null, "laptop"));
    it.pass(1000);
    const order = parsed(await orders.create(orderFields(user.id), null, 'a "b"'));
    await users.update(user.id, (fields) => ({ ...fields, name: "Ann" }), null, null, "laptop");
    for (const status of ["paid", "shipped", "delivered"] as const)
      await orders.update(order.id, setFields({ status }), null, null, "shop");
    const gone = parsed(await users.create(userFields(), null));
    await users.update(gone.id, rename, null);
    await users.remove(gone.id, null, null, "Zoë 😀");
    const later = "2026-11-20T18:57:04.120Z";
    const ofUser = { record_id: user.id, status: null };
    const ofOrder = { record_id: order.id, created_at: later };
    const ofGone = { record_id: gone.id, status: null, token: null, created_at: later };
    expect(await changesOf(it.store)).toEqual([
      { id: 1, type: "user.created", ...ofUser, version: 1, token: "laptop", created_at: time },
      { id: 2, type: "order.created", ...ofOrder, version: 1, status: "pending", token: 'a "b"' },
      { id: 3, type: "user.updated", ...ofUser, version: 2, token: "laptop", created_at: later },
      { id: 4, type: "order.updated", ...ofOrder, version: 2, status: "paid", token: "shop" },
      { id: 5, type: "order.updated", ...ofOrder, version: 3, status: "shipped", token: "shop" },
      { id: 6, type: "order.updated", ...ofOrder, version: 4, status: "delivered", token: "shop" },
      { id: 7, type: "user.created", ...ofGone, version: 1 },
      { id: 8, type: "user.updated", ...ofGone, version: 2 },
      { id: 9, type: "user.deleted", ...ofGone, version: 2, token: "Zoë 😀" },
    ]);
    await expectDense(it.store, 9);
  });

  test("a change has its fields in the order of the schema", async () => {
    await using it = await openWithClock(open);
    const { id, json } = await it.store.users.create(userFields(), null, "laptop");
    const change =
      `{"id":1,"type":"user.created","record_id":${id},"version":1,"status":null,` +
      `"token":"laptop","created_at":"${time}"`;
    expect((await list(it.store)).records).toBe(`${change}}`);
    const withRecord = await list(it.store, { include: "record" });
    expect(withRecord.records).toBe(`${change},"record":${json}}`);
  });

  test("an import records the records that it creates, at its own time and without a token", async () => {
    await using it = await openWithClock(open);
    const times = {
      created_at: "2020-01-01T00:00:00.000Z",
      updated_at: "2020-01-01T00:00:00.000Z",
    };
    const user: User = { id: 7, ...userFields(), version: 4, ...times };
    const order: Order = { id: 5, ...orderFields(7), status: "shipped", version: 3, ...times };
    await it.store.bulk.users.import([user, user, userFields()]);
    await it.store.bulk.orders.import([order, { ...orderFields(7), reference: "a:1" }]);
    const made = { token: null, created_at: time };
    const placed = expect.any(Number);
    expect(await changesOf(it.store)).toEqual([
      { id: 1, type: "user.created", record_id: 7, version: 4, status: null, ...made },
      { id: 2, type: "user.created", record_id: 8, version: 1, status: null, ...made },
      { id: 3, type: "order.created", record_id: 5, version: 3, status: "shipped", ...made },
      { id: 4, type: "order.created", record_id: placed, version: 1, status: "pending", ...made },
    ]);
    await expectDense(it.store, 4);
  });

  test("changes.list returns an empty page with first and last when there has been no change", async () => {
    await using it = await openWithClock(open);
    const { feed, ...page } = await pageOf(it.store);
    expect(page).toEqual({ changes: [], total: 0, first: 1, last: 0 });
    expect(feed).toMatch(/^[A-Za-z0-9]{1,64}$/);
    expect((await pageOf(it.store, { after: 0, feed })).changes).toEqual([]);
    await expectRejection(list(it.store, { after: 1 }), "changes_reset");
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

  test("changes.deleteExpired deletes the oldest changes, and keeps the newest one", async () => {
    await using it = await openWithClock(open);
    await fill(it.store, 3);
    it.pass(DAY_MS);
    const middle = it.clock.time;
    await fill(it.store, 2);
    it.pass(DAY_MS);
    await it.store.changes.deleteExpired(new Date(time));
    await expectDense(it.store, 5);
    await it.store.changes.deleteExpired(middle);
    const { changes, feed, ...state } = await pageOf(it.store);
    expect(changes.map(({ id }) => id)).toEqual([4, 5]);
    expect(state).toEqual({ total: 2, first: 4, last: 5 });
    expect(await idsOf(it.store, { offset: 1 })).toEqual([5]);
    expect(await idsOf(it.store, { after: 3, feed })).toEqual([4, 5]);
    for (const after of [0, 1, 2]) {
      await expectRejection(
        list(it.store, { after, feed }),
        "changes_expired",
        "changes before 4 are no longer kept: synchronize again",
      );
    }
    expect(await it.store.check()).toEqual([]);
    await it.store.changes.deleteExpired(new Date(it.clock.time.getTime() + DAY_MS));
    expect(await pageOf(it.store)).toMatchObject({ total: 1, first: 5, last: 5 });
    await fill(it.store, 1);
    expect(await idsOf(it.store)).toEqual([5, 6]);
    expect(await it.store.check()).toEqual([]);
  });

  test("changes.deleteExpired leaves consecutive changes when the clock has gone back", async () => {
    await using it = await openWithClock(open);
    const times = [0, 9, 1, 9, 2, 9];
    for (const at of times) {
      it.clock.time = new Date(Date.parse(time) + at * DAY_MS);
      await newUser(it.store);
    }
    await it.store.changes.deleteExpired(new Date(Date.parse(time) + 5 * DAY_MS));
    expect(await idsOf(it.store)).toEqual([2, 3, 4, 5, 6]);
    expect(await it.store.check()).toEqual([]);
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
