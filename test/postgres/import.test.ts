import { describe, expect, test } from "bun:test";
import type { Order } from "../../src/domain/order.ts";
import { newUser, orderFields, parsed, userFields } from "../contract/open.ts";
import { cluster, deleteUser, makeHarness, patient } from "./postgres-harness.ts";

const time = "2020-01-02T03:04:05.678Z";

function oldOrder(id: number, userId: number): Order {
  const rest = { version: 2, created_at: time, updated_at: time };
  return { id, ...orderFields(userId), status: "paid", ...rest };
}

describe.if(cluster !== null)("import", () => {
  test("stores a record when it is larger than one protocol message", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    const metadata = Object.fromEntries(
      Array.from({ length: 50 }, (_, n) => [`k${n}`, "\t\\".repeat(250)]),
    );
    const name = "\\N\\.\t\n\r\\é😀";
    const users = Array.from({ length: 100 }, () => userFields({ name, metadata }));
    const results = await store.bulk.users.import(users);
    expect(results.every(({ outcome }) => outcome === "created")).toBe(true);
    expect(parsed(await store.users.get(100))).toMatchObject({ name, metadata });
    const again = await store.bulk.users.import(users);
    expect(again.every(({ outcome }) => outcome === "unchanged")).toBe(true);
  });

  test("rejects an order when its user is deleted during the import", async () => {
    await using world = await makeHarness();
    const store = await world.open({ databaseUrl: world.url + patient });
    const [stays, goes] = [await newUser(store), await newUser(store)];
    // The import sees the deletion only after its commit: the foreign key check waits for it.
    const removing = await world.hold(deleteUser(goes.id));
    const importing = store.bulk.orders.import([oldOrder(1, stays.id), oldOrder(2, goes.id)]);
    await world.untilWaiting();
    await removing.commit();
    expect(await importing).toEqual([
      { outcome: "created" },
      { outcome: "rejected", reason: "user_id must be an existing user" },
    ]);
    expect(await store.check()).toEqual([]);
  });

  test("stores nothing of a batch when it fails", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    await world.run("alter table users add check (name <> 'no')");
    const users = [userFields(), userFields({ name: "no" })];
    await expect(store.bulk.users.import(users)).rejects.toThrow();
    expect((await store.users.list({ limit: 1, offset: 0 })).total).toBe(0);
    await newUser(store);
    expect(await store.check()).toEqual([]);
  });
});
