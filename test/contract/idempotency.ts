import { expect, test } from "bun:test";
import { type IdempotencyKey, KEY_LIFETIME_MS } from "../../src/domain/idempotency.ts";
import type { Store } from "../../src/domain/store.ts";
import { expectRejection } from "../support/expect-error.ts";
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
    const { record } = await users.create(known, keyOf("known"));
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
    expect((await creating[22])?.record).toEqual(record);
    for (const [at, user] of fields.entries()) {
      const created = (await creating[at]!).record;
      expect(parsed(created)).toMatchObject(user);
      expect(await users.get(created.id)).toEqual(created);
    }
    // A create that fails stores no key.
    expect((await users.create(userFields(), keyOf("taken"))).replayed).toBe(false);
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
    const { record } = await orders.create(orderFields(first), keyOf("known"));
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
    expect((await placing[22])?.record).toEqual(record);
    for (const [at, order] of fields.entries()) {
      const placed = (await placing[at]!).record;
      expect(parsed(placed)).toMatchObject(order);
      expect(await orders.get(placed.id)).toEqual(placed);
    }
    expect((await orders.create(orderFields(first), keyOf("unknown"))).replayed).toBe(false);
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
    expect(await place()).toEqual({ record: first.record, replayed: true });
    await expectRejection(place(other), "idempotency_key_reused");
    it.pass(1);
    const second = await place();
    expect(second.replayed).toBe(false);
    expect(second.record.id).not.toBe(first.record.id);
    // A replay does not extend the lifetime; a new record has its own 24 hours.
    it.pass(KEY_LIFETIME_MS - 1);
    expect(await place()).toEqual({ record: second.record, replayed: true });
    it.pass(1);
    expect((await place(other)).replayed).toBe(false);
    await expectRejection(place(), "idempotency_key_reused");
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
    expect((await place(old)).replayed).toBe(false);
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
