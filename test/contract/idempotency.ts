import { expect, test } from "bun:test";
import { type IdempotencyKey, KEY_LIFETIME_MS } from "../../src/domain/idempotency.ts";
import { type Order, patchOrder } from "../../src/domain/order.ts";
import type { Store } from "../../src/domain/store.ts";
import { eraseUser } from "../../src/domain/user.ts";
import { expectRejection } from "../support/expect-error.ts";
import { ifMatch } from "../support/preconditions.ts";
import {
  all,
  type EitherStore,
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

const HOUR_MS = 60 * 60 * 1000;

function placeWith(store: Store, userId: number, names: readonly string[]) {
  return Promise.all(names.map((name) => store.orders.create(orderFields(userId), keyOf(name))));
}

export function idempotencyContract(open: Open): void {
  for (const table of ["users", "orders"] as const) {
    test(`${table}.create gives each of many concurrent calls its own outcome`, async () => {
      await using it = await openWithClock(open);
      const owners = await Promise.all(Array.from({ length: 5 }, () => newUser(it.store)));
      const { create, get, list }: EitherStore = it.store[table];
      const fieldsOf = (at: number) => {
        const fields = { metadata: { at: `😀 ${at}` } };
        return table === "users"
          ? userFields(fields)
          : orderFields(owners[at % 5]?.id ?? 0, fields);
      };
      const refused =
        table === "users"
          ? userFields({ email: owners[0]?.email.toUpperCase() ?? "" })
          : orderFields(Math.max(...owners.map(({ id }) => id)) + 1);
      const code = table === "users" ? "email_taken" : "validation_failed";
      await create(fieldsOf(20), keyOf("expired"));
      it.pass(KEY_LIFETIME_MS);
      const known = fieldsOf(21);
      const record = await create(known, keyOf("known"));
      const { total: before } = await list(all);
      const fields = Array.from({ length: 20 }, (_, at) => fieldsOf(at));
      const creating = [
        ...fields.map((each, at) => create(each, at % 2 === 0 ? null : keyOf(`${at}`))),
        create(refused, null),
        create(refused, keyOf("refused")),
        create(known, keyOf("known")),
        create(fieldsOf(22), keyOf("known", "other")),
        create(fieldsOf(23), keyOf("expired")),
      ];
      const others = [code, code, "replayed", "idempotency_key_reused", "new"];
      const twice = [1, 2, 3].map(() => create(fieldsOf(25), keyOf("twice")));
      const [pairs, outcomes] = await Promise.all([outcomesOf(twice), outcomesOf(creating)]);
      expect(pairs.sort()).toEqual(["new", "replayed", "replayed"]);
      expect(outcomes).toEqual([...fields.map(() => "new"), ...others]);
      expect(await creating[22]).toEqual({ ...record, replayed: true });
      for (const [at, each] of fields.entries()) {
        const created = await creating[at]!;
        expect(parsed(created)).toMatchObject(each);
        expect(await get(created.id)).toEqual(created);
      }
      // A create that fails stores no key.
      expect((await create(fieldsOf(24), keyOf("refused"))).replayed).toBeUndefined();
      expect((await create(fields[1]!, keyOf("1"))).replayed).toBe(true);
      expect((await list(all)).total).toBe(before + 23);
      expect(await it.store.check()).toEqual([]);
    });
  }

  test("create replays a key for 24 hours, and then creates again, also for another request", async () => {
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

  test("update is made once per key when calls are concurrent, and when the record has changed since", async () => {
    await using it = await openWithClock(open);
    const { orders } = it.store;
    const user = await newUser(it.store);
    const { id } = await orders.create(orderFields(user.id), null);
    const count = (order: Order) => patchOrder(order, { refunded: order.refunded + 10 });
    const refund = (given: IdempotencyKey, version = 1) =>
      orders.update(id, count, ifMatch(version), given);
    const calls = [refund(keyOf("1")), refund(keyOf("1")), refund(keyOf("1"))];
    const [first] = (await Promise.all(calls)).filter((record) => record?.replayed !== true);
    expect(parsed(first ?? null)).toMatchObject({ refunded: 10, version: 2 });
    expect(await refund(keyOf("1"))).toEqual({ ...first!, replayed: true });
    expect(parsed(await refund(keyOf("2"), 2))).toMatchObject({ refunded: 20, version: 3 });
    // Also a write that changed nothing is stored.
    const same = await orders.update(id, (order) => patchOrder(order, {}), null, keyOf("3"));
    await orders.update(id, count, null);
    expect(await orders.update(id, count, null, keyOf("3"))).toEqual({ ...same!, replayed: true });
    expect(parsed(await orders.get(id))).toMatchObject({ refunded: 30, version: 4 });
    expect((await it.store.changes.list({ limit: 1, offset: 0, after: 0 })).last).toBe(5);
    expect(await it.store.check()).toEqual([]);
  });

  test("a key is replayed and kept while the clock is ahead, and also when the server was started with such a clock", async () => {
    await using it = await openWithClock(open);
    const { id } = await newUser(it.store);
    const { time } = it.clock;
    const isReplayed = async () =>
      (await it.store.orders.create(orderFields(id), key)).replayed === true;
    const stored = [await isReplayed()];
    for (const settledMs of [0, 2 * HOUR_MS]) {
      it.clock.time = new Date(time.getTime() + KEY_LIFETIME_MS + settledMs);
      while (await it.store.deleteExpiredKeys());
      stored.push(await isReplayed());
      it.clock.time = time;
      it.pass(settledMs);
      stored.push(await isReplayed());
    }
    expect(stored).toEqual([false, true, true, true, true]);
  });

  test("deleteExpiredKeys deletes all keys that are past their lifetime, and no other ones", async () => {
    await using it = await openWithClock(open);
    const { id } = await newUser(it.store);
    // More than one transaction deletes.
    const names = Array.from({ length: 1501 }, (_, n) => `key-${n}`);
    const reused = names.slice(0, 500);
    await placeWith(it.store, id, names);
    const { time } = it.clock;
    it.pass(1);
    await placeWith(it.store, id, ["young"]);
    it.pass(KEY_LIFETIME_MS - 1);
    await placeWith(it.store, id, reused);
    const end = it.clock.time;
    /** With the clock back, the remaining keys are visible. */
    async function remaining(...among: readonly string[]): Promise<string[]> {
      it.clock.time = time;
      const placed = await placeWith(it.store, id, among);
      it.clock.time = end;
      return among.filter((_, at) => placed[at]?.replayed);
    }
    while (await it.store.deleteExpiredKeys());
    expect(await remaining(...names, "young")).toEqual([...reused, "young"]);
  });

  test("replaceResults replaces, and remove deletes, what keys have of a user, and nothing else", async () => {
    await using it = await openWithClock(open);
    const { users, orders } = it.store;
    const create = (at: number) =>
      users.create(userFields({ email: `${at}@example.com`, name: "Ann" }), keyOf(`user ${at}`));
    const [other, user] = [await create(1), await create(2)];
    const rename = () => users.update(user.id, (before) => before, null, keyOf("rename"));
    const place = (at: number) => orders.create(orderFields(other.id), keyOf(`order ${at}`));
    const placed = [await place(1), await place(2)];
    expect(placed.map(({ id }) => id)).toContain(user.id);
    await rename();
    const erased = await users.update(user.id, eraseUser, null);
    await it.store.replaceResults(erased!);
    for (const replay of [await create(2), await rename()])
      expect(replay).toEqual({ ...erased!, replayed: true });
    const expectOthers = async () => {
      expect(await create(1)).toEqual({ ...other, replayed: true });
      for (const [at, order] of placed.entries())
        expect(await place(at + 1)).toEqual({ ...order, replayed: true });
    };
    await expectOthers();
    await users.remove(user.id, null);
    await expectOthers();
    expect(await rename()).toBeNull();
    expect((await create(2)).replayed).toBeUndefined();
  });
}
