// Work that waits for a lock of another transaction leaves connections to other work.
import { expect } from "bun:test";
import { newUser, orderFields, outcomesOf, rename, setPaid, userFields } from "../contract/open.ts";
import { expectRejection } from "../support/expect-error.ts";
import { insertUser, patient, test, waitingBackends } from "./postgres-harness.ts";

test("a locked row makes only its own write fail when others share its statement", async (world) => {
  const store = await world.open({ databaseUrl: world.urlWith("max=10") });
  const { users, orders } = store;
  const [locked, buyer, free] = [await newUser(store), await newUser(store), await newUser(store)];
  const gone = await newUser(store);
  const place = async (id: number) => (await orders.create(orderFields(id), null)).id;
  const [lockedOrder, order] = [await place(free.id), await place(free.id)];
  const email = "new@example.com";
  const key = (name: string) => ({ owner: "a", key: name, fingerprint: "f" });
  await using held = await world.hold(`
    select from users where id in (${locked.id}, ${buyer.id}) for update;
    select from orders where id = ${lockedOrder} for update;
    ${insertUser(1000, email)};
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

test("pages and unknown tokens that wait for a lock leave connections to reads and creates", async (world) => {
  const store = await world.open({ databaseUrl: world.urlWith(`max=10${patient}`) });
  const user = await newUser(store);
  await using held = await world.hold("lock table orders, tokens in access exclusive mode");
  const waiting: unknown[] = [];
  // Each in a later turn, so that another statement could begin.
  for (let at = 0; at < 6; at += 1) {
    waiting.push(store.tokens.find(`unknown ${at}`));
    await world.untilWaiting(Math.min(2, at + 1));
    await Bun.sleep(6);
  }
  expect(await world.run(waitingBackends)).toHaveLength(2);
  for (let offset = 0; offset < 60; offset += 1)
    waiting.push(store.orders.list({ limit: 10, offset }));
  await world.untilWaiting(7);
  expect((await store.users.get(user.id))?.id).toBe(user.id);
  await store.users.create(userFields(), null);
  expect(await world.run(waitingBackends)).toHaveLength(7);
  await held.commit();
  await Promise.all(waiting);
});
