import { expect, test } from "bun:test";
import type { IdempotencyKey } from "../../src/domain/idempotency.ts";
import { LARGE_PAGE_BYTES } from "../../src/domain/page.ts";
import type { Store } from "../../src/domain/store.ts";
import { eraseUser } from "../../src/domain/user.ts";
import { expectRejection } from "../support/expect-error.ts";
import { listed } from "../support/listed.ts";
import { newUser, type Open, openWithClock, orderFields, userFields } from "./open.ts";

const keyOf = (key: string): IdempotencyKey => ({
  owner: "a".repeat(64),
  key,
  fingerprint: "f".repeat(64),
});

function placeWith(store: Store, userId: number, names: readonly string[]) {
  return Promise.all(names.map((name) => store.orders.create(orderFields(userId), keyOf(name))));
}

export function recordsContract(open: Open): void {
  test("close waits for writes in progress", async () => {
    const { store } = await openWithClock(open);
    const { id } = await newUser(store);
    const writes = [1, 2, 3].map(() => store.orders.create(orderFields(id), null));
    await store.checkUsable();
    await store.close();
    const ids = (await Promise.all(writes)).map(({ id }) => id);
    expect(new Set(ids).size).toBe(3);
  });

  test("a page is unavailable when it exceeds 256 KiB and the memory has no room for more", async () => {
    await using it = await openWithClock(open);
    const { users, orders, changes } = it.store;
    // 30 of them are 15 kB.
    const value = "x".repeat(500);
    const metadata = Object.fromEntries(Array.from({ length: 30 }, (_, at) => [`${at}`, value]));
    const owner = await newUser(it.store, { metadata });
    const created = Array.from({ length: 30 }, () => users.create(userFields({ metadata }), null));
    const ids = (await Promise.all(created)).map(({ id }) => id);
    await Promise.all(ids.map(() => orders.create(orderFields(owner.id, { metadata }), null)));
    const memory = { room: () => LARGE_PAGE_BYTES, hold: () => null };
    const pages = [
      (limit: number) => users.list({ limit, offset: 0 }, "a", memory),
      (limit: number) => users.list({ limit, offset: 1, sort: "-id" }, "a", memory),
      (limit: number) => users.list({ limit, offset: 0, id: ids }, "a", memory),
      (limit: number) => orders.list({ limit, offset: 0, user_id: owner.id }, "a", memory),
      (limit: number) => orders.list({ limit, offset: 0, after: 0 }, "a", memory),
      (limit: number) => changes.list({ limit, offset: 0, include: "record" }, "a", memory),
    ];
    for (const page of pages) {
      for (const limit of [20, 1000])
        await expectRejection((async () => page(limit))(), "unavailable", /^too many large pages/);
      expect((await listed(page(10))).rows).toHaveLength(10);
    }
  });

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
