import { expect, test } from "bun:test";
import { type IdempotencyKey, KEY_LIFETIME_MS } from "../../src/domain/idempotency.ts";
import { type Order, patchOrder } from "../../src/domain/order.ts";
import type { Store } from "../../src/domain/store.ts";
import { expectRejection } from "../support/expect-error.ts";
import { ifMatch } from "../support/preconditions.ts";
import {
  all,
  newUser,
  type Open,
  openWithClock,
  orderFields,
  outcomesOf,
  parsed,
  userFields,
} from "./open.ts";

const key: IdempotencyKey = { owner: "a".repeat(64), key: "key-1", fingerprint: "f".repeat(64) };

function keyOf(name: string, fingerprint = key.fingerprint): IdempotencyKey {
  return { ...key, key: name, fingerprint };
}

/** Places an order for each key, concurrently. */
function placeWith(store: Store, userId: number, names: readonly string[]) {
  return Promise.all(names.map((name) => store.orders.create(orderFields(userId), keyOf(name))));
}

export function idempotencyContract(open: Open): void {
  test("create gives each of many concurrent calls its own outcome", async () => {
    await using it = await openWithClock(open);
    const { users } = it.store;
    const [known, taken] = [userFields(), userFields()];
    const record = await users.create(known, keyOf("known"));
    await users.create(taken, null);
    const fields = Array.from({ length: 20 }, (_, at) => userFields({ name: `😀 ${at}` }));
    const creating = [
      ...fields.map((user, at) => users.create(user, at % 2 === 0 ? null : keyOf(`${at}`))),
      users.create(userFields({ email: taken.email.toUpperCase() }), null),
      users.create(taken, keyOf("taken")),
      users.create(known, keyOf("known")),
      users.create(userFields(), keyOf("known", "other")),
    ];
    const made = fields.map(() => "new");
    const outcomes = [...made, "email_taken", "email_taken", "replayed", "idempotency_key_reused"];
    expect(await outcomesOf(creating)).toEqual(outcomes);
    expect(await creating[22]).toEqual({ ...record, replayed: true });
    for (const [at, user] of fields.entries()) {
      const created = await creating[at]!;
      expect(parsed(created)).toMatchObject(user);
      expect(await users.get(created.id)).toEqual(created);
    }
    // A create that fails stores no key.
    expect((await users.create(userFields(), keyOf("taken"))).replayed).toBeUndefined();
    expect((await users.create(fields[1] as typeof known, keyOf("1"))).replayed).toBe(true);
    expect((await users.list({ limit: 1, offset: 0 })).total).toBe(23);
    expect(await it.store.check()).toEqual([]);
  });

  test("orders.create gives each of many concurrent calls its own outcome", async () => {
    await using it = await openWithClock(open);
    const { orders } = it.store;
    const made = await Promise.all(Array.from({ length: 5 }, () => newUser(it.store)));
    const ids = made.map(({ id }) => id);
    const unknown = Math.max(...ids) + 1;
    const first = Number(ids[0]);
    await orders.create(orderFields(first), keyOf("expired"));
    it.pass(KEY_LIFETIME_MS);
    const record = await orders.create(orderFields(first), keyOf("known"));
    const fields = Array.from({ length: 20 }, (_, at) =>
      orderFields(Number(ids[at % 5]), { metadata: { at: `${at}` } }),
    );
    const placing = [
      ...fields.map((order, at) => orders.create(order, at % 2 === 0 ? null : keyOf(`${at}`))),
      orders.create(orderFields(unknown), null),
      orders.create(orderFields(unknown), keyOf("unknown")),
      orders.create(orderFields(first), keyOf("known")),
      orders.create(orderFields(first), keyOf("known", "other")),
      orders.create(orderFields(first), keyOf("expired")),
    ];
    const outcomes = [
      "validation_failed",
      "validation_failed",
      "replayed",
      "idempotency_key_reused",
      "new",
    ];
    expect(await outcomesOf(placing)).toEqual([...fields.map(() => "new"), ...outcomes]);
    expect(await placing[22]).toEqual({ ...record, replayed: true });
    for (const [at, order] of fields.entries()) {
      const placed = await placing[at]!;
      expect(parsed(placed)).toMatchObject(order);
      expect(await orders.get(placed.id)).toEqual(placed);
    }
    expect((await orders.create(orderFields(first), keyOf("unknown"))).replayed).toBeUndefined();
    expect((await orders.create(orderFields(first), keyOf("1"))).replayed).toBe(true);
    expect((await orders.list({ limit: 1, offset: 0 })).total).toBe(24);
    expect((await orders.list({ limit: 1, offset: 0, user_id: first })).total).toBe(8);
    expect(await it.store.check()).toEqual([]);
  });

  test("place replays a key for 24 hours, and then creates again, also for another request", async () => {
    await using it = await openWithClock(open);
    expect(KEY_LIFETIME_MS).toBe(86_400_000);
    const { id } = await newUser(it.store);
    const other = keyOf(key.key, "e".repeat(64));
    const place = (given = key) => it.store.orders.create(orderFields(id), given);
    const first = await place();
    it.pass(KEY_LIFETIME_MS - 1);
    expect(await place()).toEqual({ ...first, replayed: true });
    await expectRejection(place(other), "idempotency_key_reused");
    it.pass(1);
    const second = await place();
    expect(second.replayed).toBeUndefined();
    expect(second.id).not.toBe(first.id);
    // A replay does not extend the lifetime; a new record has its own 24 hours.
    it.pass(KEY_LIFETIME_MS - 1);
    expect(await place()).toEqual({ ...second, replayed: true });
    it.pass(1);
    expect((await place(other)).replayed).toBeUndefined();
    await expectRejection(place(), "idempotency_key_reused");
  });

  test("update and remove are made once per key, before anything else is checked", async () => {
    await using it = await openWithClock(open);
    const { users, orders } = it.store;
    const user = await newUser(it.store);
    const { id } = await orders.create(orderFields(user.id), null);
    const count = (order: Order) => patchOrder(order, { refunded: order.refunded + 10 });
    const refund = (given: IdempotencyKey, version = 1) =>
      orders.update(id, count, ifMatch(version), given);
    const calls = [refund(keyOf("1")), refund(keyOf("1")), refund(keyOf("1"))];
    const [first] = (await Promise.all(calls)).filter((record) => record?.replayed !== true);
    expect(parsed(first ?? null)).toMatchObject({ refunded: 10, version: 2 });
    expect(await refund(keyOf("1"))).toEqual({ ...first!, replayed: true });
    await expectRejection(refund(keyOf("1", "other")), "idempotency_key_reused");
    await expectRejection(refund(keyOf("2")), "version_mismatch");
    expect(parsed(await refund(keyOf("2"), 2))).toMatchObject({ refunded: 20, version: 3 });
    // Also a write that changed nothing is stored, but none that found nothing.
    const same = await orders.update(id, (order) => patchOrder(order, {}), null, keyOf("3"));
    await orders.update(id, count, null);
    expect(await orders.update(id, count, null, keyOf("3"))).toEqual({ ...same!, replayed: true });
    expect(await orders.update(99, count, null, keyOf("4"))).toBe(null);
    expect(await users.remove(99, null, keyOf("4"))).toBe(null);
    await expectRejection(users.remove(user.id, null, keyOf("4")), "user_has_orders");
    expect(parsed(await orders.get(id))).toMatchObject({ refunded: 30, version: 4 });
    expect((await it.store.changes.list({ limit: 1, offset: 0, after: 0 })).last).toBe(5);
    expect(await it.store.check()).toEqual([]);
  });

  test("remove deletes what keys have of the user, apart from its own result", async () => {
    await using it = await openWithClock(open);
    const { users, orders } = it.store;
    const kept = await newUser(it.store);
    await orders.create(orderFields(kept.id), keyOf("order"));
    const fields = userFields({ name: "Ann" });
    const user = await users.create(fields, keyOf("create"));
    await users.update(user.id, (ann) => ({ ...ann, name: "Anna" }), null, keyOf("update"));
    const removed = await users.remove(user.id, null, keyOf("remove"));
    expect(await users.remove(user.id, null, keyOf("remove"))).toEqual({
      ...removed!,
      replayed: true,
    });
    expect(await users.update(user.id, (ann) => ann, null, keyOf("update"))).toBe(null);
    const again = await users.create(fields, keyOf("create"));
    expect([again.replayed, again.id > user.id]).toEqual([undefined, true]);
    expect((await orders.create(orderFields(kept.id), keyOf("order"))).replayed).toBe(true);
  });

  test("deleteExpiredKeys deletes only keys that are past their lifetime", async () => {
    await using it = await openWithClock(open);
    const { id } = await newUser(it.store);
    const old = keyOf("old");
    const young = keyOf("young");
    const place = (each: IdempotencyKey) => it.store.orders.create(orderFields(id), each);
    await place(old);
    it.pass(1);
    await place(young);
    it.pass(KEY_LIFETIME_MS - 1);
    // With the clock back within the lifetime of both, the remaining keys are visible.
    const { time } = it.clock;
    const begin = new Date(time.getTime() - KEY_LIFETIME_MS + 1);
    it.clock.time = time;
    await it.store.deleteExpiredKeys(AbortSignal.abort());
    it.clock.time = begin;
    expect((await place(old)).replayed).toBe(true);
    it.clock.time = time;
    await it.store.deleteExpiredKeys();
    it.clock.time = begin;
    expect((await place(young)).replayed).toBe(true);
    expect((await place(old)).replayed).toBeUndefined();
    expect((await it.store.orders.list(all)).total).toBe(3);
  });

  test("deleteExpiredKeys deletes all expired keys when they need more than one transaction, and older ones have been reused", async () => {
    await using it = await openWithClock(open);
    const { id } = await newUser(it.store);
    const names = Array.from({ length: 1501 }, (_, n) => `key-${n}`);
    const reused = names.slice(0, 500);
    await placeWith(it.store, id, names);
    const { time } = it.clock;
    it.pass(KEY_LIFETIME_MS);
    await placeWith(it.store, id, reused);
    await it.store.deleteExpiredKeys();
    it.clock.time = time;
    const placed = await placeWith(it.store, id, names);
    const replayed = names.filter((_, at) => placed[at]?.replayed);
    expect(replayed).toEqual(reused);
  });
}
