// The statements for several servers on the tables of one, without Citus: their results, not their plans.
import { expect } from "bun:test";
import type { Change } from "../../src/domain/change.ts";
import type { OrderEdit } from "../../src/domain/order.ts";
import { createContext } from "../../src/postgres/engine/context.ts";
import { distribution, severalServers } from "../../src/postgres/server/citus.ts";
import { createOrderStore } from "../../src/postgres/tables/orders.ts";
import { all, newUser, orderFields, parsed, setFields } from "../contract/open.ts";
import { expectRejection } from "../support/expect-error.ts";
import { listed } from "../support/listed.ts";
import { type Harness, recordStatements, test } from "./postgres-harness.ts";

/** @returns a store with two users */
async function distribute(world: Harness) {
  const statements = distribution.filter((statement) => !/^select|^set|citus/.test(statement));
  await world.run(statements.join(";"));
  const store = await world.open();
  return { store, one: await newUser(store), other: await newUser(store) };
}

test("orders are created, read, listed, changed and checked by their index", async (world) => {
  const { store, one, other } = await distribute(world);
  const { orders } = store;
  const set = (id: number, edit: Partial<OrderEdit>) => orders.update(id, setFields(edit), null);
  const owners = [one, other, one];
  const placed = owners.map(({ id }, at) => orderFields(id, { reference: `R${at}` }));
  await Promise.all(placed.map((fields) => orders.create(fields, null)));
  const imported = { ...orderFields(other.id), reference: "1" };
  expect(await store.bulk.orders.import([imported])).toEqual([{ outcome: "created" }]);
  const changed = await Promise.all([1, 2, 3].map((id) => set(id, { status: "paid" })));
  expect(await Promise.all([1, 2, 3].map((id) => orders.get(id)))).toEqual(changed);
  expect(await orders.get(99)).toBeNull();
  const first = { limit: 1, offset: 0 };
  for (const [query, total, nextAfter] of [
    [{ user_id: one.id }, 2, null],
    [{ reference: "R0" }, 1, null],
    [{ user_id: one.id, after: 0 }, 2, 1],
    [{ status: "paid" }, 3, null],
  ] as const) {
    const page = { total, records: changed[0]?.json, nextAfter };
    expect(await orders.list({ ...first, ...query })).toMatchObject(page as object);
  }
  expect(await orders.list({ ...first, offset: 10_000 })).toMatchObject({ records: "" });
  const deep = Promise.resolve(orders.list({ ...first, offset: 10_001 }));
  await expect(deep).rejects.toThrow("offset must be at most 10,000 on this database: use after");
  await expect(store.users.remove(one.id, null)).rejects.toThrow("user has orders");
  // Many are looked up at the same time.
  const changes = await store.changes.list({ limit: 3, offset: 6, include: "record" });
  const found = JSON.parse(`[${changes.records}]`).map(({ record }: Change) => record);
  expect(found).toEqual(changed.map(parsed));
  await expectRejection(set(1, { user_id: other.id, reference: "1" }), "reference_taken");
  await set(4, { reference: null });
  const edit = { user_id: other.id, reference: "1", refunded: 1 };
  const moved = parsed(await set(1, edit));
  expect(moved).toMatchObject({ version: 3, ...edit });
  const query = { ...first, reference: "1", user_id: other.id };
  expect((await listed(orders.list(query))).rows).toEqual([moved]);
  expect(await store.check()).toEqual([]);
  const mismatch = "the index of orders does not match the orders";
  await world.run("update order_index set reference = '2' where id = 4");
  expect(await store.check()).toContain(mismatch);
  await world.run("delete from orders where id = 3");
  const missing = "the database is recovering from a failure";
  await expectRejection(Promise.resolve(orders.get(3)), "unavailable", missing);
});

test("an order is found when it moves between the reads of the index and of the order", async (world) => {
  const { store, one, other } = await distribute(world);
  const { id } = await store.orders.create(orderFields(one.id), null);
  const steps: (() => Promise<unknown>)[] = [];
  const { db } = recordStatements(world.connect(), (statement) =>
    /from orders/.test(statement) ? steps.shift()?.() : undefined,
  );
  const context = createContext({ db, placement: severalServers, now: () => new Date() });
  const orders = createOrderStore(context);

  steps.push(() => store.orders.update(id, setFields({ user_id: other.id }), null));
  expect(parsed(await orders.get(id))).toMatchObject({ user_id: other.id, version: 2 });
  // The commit of the coordinator is visible before those of the workers.
  await world.run(`update order_index set user_id = ${one.id} where id = ${id}`);
  const appear = `update orders set user_id = ${one.id} where id = ${id}`;
  steps.push(
    async () => {},
    () => world.run(appear),
  );
  const { rows } = await listed(orders.list({ ...all, id: [id] }));
  expect([rows, steps]).toMatchObject([[{ id, user_id: one.id }], []]);
});
