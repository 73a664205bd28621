// Creates that share a statement: each has its own outcome.
import { describe, expect, test } from "bun:test";
import type { CreateResult, IdempotencyKey } from "../../src/idempotency.ts";
import { newUser, orderFields, outcomesOf, parsed, userFields } from "../contract/open.ts";
import { cluster, deleteUser, makeHarness, patient, storedTime } from "./postgres-harness.ts";

function keyOf(key: string, fingerprint = "f"): IdempotencyKey {
  return { owner: "a".repeat(64), key, fingerprint };
}

describe.if(cluster !== null)("creates in one turn", () => {
  test("share a commit, and each user has an outcome of its own", async () => {
    await using world = await makeHarness();
    const { users } = await world.open();
    const known = userFields();
    const { record } = await users.create(known, keyOf("known"));
    const [taken, alsoTaken] = [userFields(), userFields()];
    for (const fields of [taken, alsoTaken]) await users.create(fields, null);
    world.commits.length = 0;
    const outcomes = await outcomesOf([
      users.create(userFields(), null),
      users.create(userFields({ email: taken.email.toUpperCase() }), null),
      users.create(userFields(), keyOf("new")),
      users.create(known, keyOf("known")),
      users.create(userFields(), keyOf("known", "other")),
      users.create(alsoTaken, keyOf("taken")),
    ]);
    const expected = [
      "new",
      "email_taken",
      "new",
      "replayed",
      "idempotency_key_reused",
      "email_taken",
    ];
    expect(outcomes).toEqual(expected);
    // Two creates with one key have a batch each.
    expect(world.commits).toEqual([5, 1]);
    expect((await users.list({ limit: 9, offset: 0 })).total).toBe(5);
    // A create that fails takes no id and stores no key.
    expect((await users.create(userFields(), keyOf("taken"))).record.id).toBe(record.id + 5);
  });

  test("share a commit, and each order has an outcome of its own", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    const { orders } = store;
    const { id } = await newUser(store);
    const first = await orders.place(orderFields(id), keyOf("known"));
    world.commits.length = 0;
    const withKeys = [
      orders.place(orderFields(id, { currency: "USD" }), null),
      orders.place(orderFields(id + 1), null),
      orders.place(orderFields(id), keyOf("new")),
      orders.place(orderFields(id), keyOf("known")),
      orders.place(orderFields(id + 1), keyOf("nobody")),
    ];
    const invalid = "validation_failed";
    expect(await outcomesOf(withKeys)).toEqual(["new", invalid, "new", "replayed", invalid]);
    const placed = async (at: number) => parsed((await withKeys[at])?.record ?? null);
    expect((await withKeys[3])?.record).toEqual(first.record);
    // A create that fails takes no id.
    expect(await placed(0)).toMatchObject({ id: first.record.id + 1, currency: "USD" });
    expect(await placed(2)).toMatchObject({ id: first.record.id + 2, currency: "EUR" });
    const without = [id, id + 9, id].map((user) => orders.place(orderFields(user), null));
    expect(await outcomesOf(without)).toEqual(["new", invalid, "new"]);
    expect((await without[2])?.record.id).toBe(first.record.id + 4);
    expect(world.commits).toEqual([5, 3]);
    expect(await store.check()).toEqual([]);
  });

  test("have the outcome of the newest state when another transaction commits meanwhile", async () => {
    await using world = await makeHarness();
    const store = await world.open({ databaseUrl: world.url + patient });
    const { id } = await newUser(store);
    const key = keyOf("k");
    const email = "ann@example.com";
    const insertKey = `
      insert into idempotency_keys (owner, key, fingerprint, record, created_at)
      values ('${key.owner}', '${key.key}', '${key.fingerprint}', '{"id": 77}', '9999')
    `;
    const insertUser = `
      insert into users (id, email, email_key, metadata, version, created_at, updated_at)
      values (nextval('users_id_seq'), '${email}', '${email}', '{}', 1, ${storedTime}, ${storedTime});
      insert into change_outbox (type, record_id, version, created_at)
      values (1, currval('users_id_seq'), 1, 0)
    `;
    /** Commits the statement while the create waits for its lock. */
    const outcomeDuring = async (
      statement: string,
      create: () => Promise<CreateResult<unknown>>,
    ) => {
      const other = await world.hold(statement);
      const outcomes = outcomesOf([create()]);
      await world.untilWaiting();
      await other.commit();
      return (await outcomes)[0];
    };
    const createUser = () => store.users.create(userFields({ email }), null);
    expect(await outcomeDuring(insertUser, createUser)).toBe("email_taken");
    const placeWithKey = () => store.orders.place(orderFields(id), key);
    expect(await outcomeDuring(insertKey, placeWithKey)).toBe("replayed");
    const place = () => store.orders.place(orderFields(id), null);
    expect(await outcomeDuring(deleteUser(id), place)).toBe("validation_failed");
    expect((await store.orders.list({ limit: 1, offset: 0 })).total).toBe(0);
    expect(await store.check()).toEqual([]);
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
