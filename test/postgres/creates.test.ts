// Creates that share a statement: each has its own outcome.
import { describe, expect, test } from "bun:test";
import type { IdempotencyKey } from "../../src/domain/idempotency.ts";
import { newUser, orderFields, outcomesOf, userFields } from "../contract/open.ts";
import { cluster, deleteUser, makeHarness, patient } from "./postgres-harness.ts";

function keyOf(key: string): IdempotencyKey {
  return { owner: "a".repeat(64), key, fingerprint: "f" };
}

describe.if(cluster !== null)("creates in one turn", () => {
  test("share a commit, and take no id when they fail", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    const { users, orders } = store;
    const { id, email } = await newUser(store);
    world.commits.length = 0;
    const creates = [
      users.create(userFields(), null),
      users.create(userFields({ email: email.toUpperCase() }), null),
      users.create(userFields({ email }), keyOf("taken")),
      users.create(userFields(), keyOf("new")),
    ];
    expect(await outcomesOf(creates)).toEqual(["new", "email_taken", "email_taken", "new"]);
    expect((await creates[3])?.id).toBe(id + 2);
    const places = [
      orders.create(orderFields(id), null),
      orders.create(orderFields(id + 9), null),
      orders.create(orderFields(id + 9), keyOf("nobody")),
      orders.create(orderFields(id), keyOf("order")),
    ];
    const invalid = "validation_failed";
    expect(await outcomesOf(places)).toEqual(["new", invalid, invalid, "new"]);
    expect((await places[3])?.id).toBe(Number((await places[0])?.id) + 1);
    // Two with one email have a batch each.
    expect(world.commits).toEqual([3, 1, 4]);
    expect(await store.check()).toEqual([]);
  });

  test("of an order are rejected when another transaction deletes its user meanwhile", async () => {
    await using world = await makeHarness();
    const store = await world.open({ databaseUrl: world.url + patient });
    const { id } = await newUser(store);
    const other = await world.hold(deleteUser(id));
    const outcomes = outcomesOf([store.orders.create(orderFields(id), null)]);
    await world.untilWaiting();
    await other.commit();
    expect(await outcomes).toEqual(["validation_failed"]);
    expect((await store.orders.list({ limit: 1, offset: 0 })).total).toBe(0);
    expect(await store.check()).toEqual([]);
  });

  test("return the record of another transaction when it claims their key meanwhile", async () => {
    await using world = await makeHarness();
    const store = await world.open({ databaseUrl: world.url + patient });
    const { id } = await newUser(store);
    const key = keyOf("held");
    const other = await world.hold(`
      insert into idempotency_keys (owner, key, fingerprint, record, created_at)
      values ('${key.owner}', '${key.key}', '${key.fingerprint}', '{"id": 77}', '9999')
    `);
    const creates = [0, 1].map(() => store.orders.create(orderFields(id), key));
    await world.untilWaiting();
    await other.commit();
    expect((await Promise.all(creates)).map((record) => record.id)).toEqual([77, 77]);
    expect(await outcomesOf(creates)).toEqual(["replayed", "replayed"]);
    expect((await store.orders.list({ limit: 1, offset: 0 })).total).toBe(0);
  });

  test("claim their keys in one order when the requests arrive in any order", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    const keys = [
      { ...keyOf("b"), owner: "2" },
      { ...keyOf("c"), owner: "1" },
      { ...keyOf("b"), owner: "1" },
      { ...keyOf("a"), owner: "3" },
    ];
    await Promise.all(keys.map((key) => store.users.create(userFields(), key)));
    // The order in which the rows were inserted.
    const claimed = await world.run("select key, owner from idempotency_keys order by ctid");
    expect(claimed).toEqual([
      { key: "a", owner: "3" },
      { key: "b", owner: "1" },
      { key: "b", owner: "2" },
      { key: "c", owner: "1" },
    ]);
  });
});
