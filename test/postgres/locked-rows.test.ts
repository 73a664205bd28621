// Work that waits for a lock of another transaction leaves connections to other work.
import { describe, expect, test } from "bun:test";
import type { MaybePromise } from "../../src/base/maybe-promise.ts";
import { newUser, orderFields, outcomesOf, rename, setPaid, userFields } from "../contract/open.ts";
import { expectRejection } from "../support/expect-error.ts";
import { ifMatch } from "../support/preconditions.ts";
import { cluster, makeHarness, patient, storedTime, waitingBackends } from "./postgres-harness.ts";

describe.if(cluster !== null)("a locked row", () => {
  test("makes only its own write fail when others share its statement", async () => {
    await using world = await makeHarness();
    const store = await world.open({ databaseUrl: world.urlWith("max=10") });
    const { users, orders } = store;
    const [locked, buyer, free] = [
      await newUser(store),
      await newUser(store),
      await newUser(store),
    ];
    const gone = await newUser(store);
    const place = async (id: number) => (await orders.create(orderFields(id), null)).id;
    const [lockedOrder, order] = [await place(free.id), await place(free.id)];
    const email = "new@example.com";
    const key = (name: string) => ({ owner: "a", key: name, fingerprint: "f" });
    await using held = await world.hold(`
      select from users where id in (${locked.id}, ${buyer.id}) for update;
      select from orders where id = ${lockedOrder} for update;
      insert into users (id, email, email_key, metadata, version, created_at, updated_at)
      values (1000, '${email}', '${email}', '{}', 1, ${storedTime}, ${storedTime});
      insert into idempotency_keys (owner, key, fingerprint, record, created_at)
      values ('a', 'held', 'f', '{"id": 77}', '9999')
    `);
    const waiting = () => [
      () => users.update(locked.id, rename, null),
      () => orders.update(lockedOrder, setPaid, null),
      () => orders.create(orderFields(buyer.id), null),
      () => orders.create(orderFields(free.id), key("held")),
      () => users.create(userFields({ email }), null),
    ];
    const rejected = waiting().map((write) =>
      expectRejection(write(), "unavailable", "the database is busy"),
    );
    const others = [
      users.update(free.id, rename, null),
      users.remove(gone.id, null),
      orders.update(order, setPaid, null),
      orders.create(orderFields(free.id), null),
      orders.create(orderFields(free.id), key("free")),
      users.create(userFields(), null),
    ];
    for (const record of await Promise.all(others)) expect(record).not.toBeNull();
    await Promise.all(rejected);
    await held.commit();
    const [updated, paid, ...creates] = waiting();
    expect([await updated?.(), await paid?.()]).toMatchObject([{ version: 2 }, { version: 2 }]);
    const outcomes = await outcomesOf(creates.map((create) => create() as never));
    expect(outcomes).toEqual(["new", "replayed", "email_taken"]);
  });

  test("does not have an update repeated when a delete of its batch waits for it", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    const [locked, free] = [await newUser(store), await newUser(store)];
    await using _held = await world.hold(`select from users where id = ${locked.id} for update`);
    const removed = expectRejection(store.users.remove(locked.id, null), "unavailable");
    const updated = await store.users.update(free.id, rename, ifMatch(1));
    expect(updated?.version).toBe(2);
    await removed;
  });

  test("holds one connection when many writes need it, so that others go on", async () => {
    await using world = await makeHarness();
    const store = await world.open({ databaseUrl: world.urlWith("max=5") });
    const [locked, free] = [await newUser(store), await newUser(store)];
    const held = await world.hold(`select from users where id = ${locked.id} for update`);
    const writes = Array.from({ length: 20 }, () =>
      store.orders.create(orderFields(locked.id), null),
    );
    const settled = Promise.allSettled(writes);
    await world.untilWaiting();
    for (let sample = 0; sample < 30; sample += 1) {
      expect((await world.run(waitingBackends)).length).toBeLessThanOrEqual(1);
      expect((await store.users.update(free.id, rename, null))?.version).toBe(sample + 2);
      await store.orders.create(orderFields(free.id), null);
    }
    await held.commit();
    await settled;
  });
});

describe.if(cluster !== null)("pages that wait for a lock", () => {
  test("delay neither reads nor creates of users", async () => {
    await using world = await makeHarness();
    const store = await world.open({ databaseUrl: world.url + patient });
    const user = await newUser(store);
    await using held = await world.hold("lock table orders in access exclusive mode");
    let settled = 0;
    const pages = Array.from({ length: 60 }, async (_, offset) => {
      await store.orders.list({ limit: 10, offset });
      settled += 1;
    });
    await world.untilWaiting(2);
    expect((await store.users.get(user.id))?.id).toBe(user.id);
    await store.users.create(userFields(), null);
    expect(settled).toBe(0);
    await held.commit();
    await Promise.all(pages);
  });
});

describe.if(cluster !== null)("tokens that are unknown", () => {
  test("wait for two statements, beside which records are read", async () => {
    await using world = await makeHarness();
    const store = await world.open({ databaseUrl: world.url + patient });
    const { id } = await newUser(store);
    const held = await world.hold("lock table tokens in access exclusive mode");
    const finds: MaybePromise<unknown>[] = [];
    // Each in a later turn, so that another statement could begin.
    for (let at = 0; at < 6; at += 1) {
      finds.push(store.tokens.find(`unknown ${at}`));
      await world.untilWaiting(Math.min(2, at + 1));
      await Bun.sleep(6);
    }
    expect(await world.run(waitingBackends)).toHaveLength(2);
    expect((await store.users.get(id))?.id).toBe(id);
    await held.commit();
    expect(await Promise.all(finds)).toEqual(finds.map(() => null));
  });
});
