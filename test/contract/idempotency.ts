import { expect, test } from "bun:test";
import type { IdempotencyKey } from "../../src/domain/idempotency.ts";
import type { Store } from "../../src/domain/store.ts";
import { eraseUser } from "../../src/domain/user.ts";
import { newUser, type Open, openWithClock, orderFields, userFields } from "./open.ts";

const key: IdempotencyKey = { owner: "a".repeat(64), key: "key-1", fingerprint: "f".repeat(64) };

function keyOf(name: string): IdempotencyKey {
  return { ...key, key: name };
}

function placeWith(store: Store, userId: number, names: readonly string[]) {
  return Promise.all(names.map((name) => store.orders.create(orderFields(userId), keyOf(name))));
}

export function idempotencyContract(open: Open): void {
  test("deleteExpiredKeys deletes all keys that were stored before a time, and no other ones", async () => {
    await using it = await openWithClock(open);
    const { id } = await newUser(it.store);
    // More than one transaction deletes.
    const names = Array.from({ length: 1501 }, (_, n) => `key-${n}`);
    await placeWith(it.store, id, names);
    it.pass(1);
    await placeWith(it.store, id, ["young"]);
    while (await it.store.deleteExpiredKeys(it.clock.time));
    const batches = await it.store.withCopySource((source) =>
      Array.fromAsync(source.read("idempotency_keys")),
    );
    expect(batches.flat().map((row) => row["key"])).toEqual(["young"]);
  });

  test("replaceResults replaces what keys have of a user, and nothing else", async () => {
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
    expect(await create(1)).toEqual({ ...other, replayed: true });
    for (const [at, order] of placed.entries())
      expect(await place(at + 1)).toEqual({ ...order, replayed: true });
  });
}
