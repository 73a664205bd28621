// The statements for several servers on the tables of one, without Citus: their results, not their plans.
import { expect } from "bun:test";
import { distribution, severalServers } from "../../src/postgres/server/citus.ts";
import { all, newUser, orderFields, parsed, setFields } from "../contract/open.ts";
import { play } from "../model/contract/play.ts";
import { makeSteps } from "../model/contract/steps.ts";
import { storePort } from "../model/contract/store-port.ts";
import { expectRejection } from "../support/expect-error.ts";
import { listed } from "../support/listed.ts";
import { emptyTables } from "./cluster.ts";
import { type Harness, recordStatements, test } from "./postgres-harness.ts";

const HISTORIES = 5;

/** @returns a store with two users */
async function distribute(world: Harness) {
  const statements = distribution.filter((statement) => !/^select|^set|citus/.test(statement));
  await world.run(statements.join(";"));
  const store = await world.open();
  return { store, one: await newUser(store), other: await newUser(store) };
}

test("histories keep all promises with an index of the orders", async (world) => {
  await distribute(world);
  const makeDatabase = async () => {
    await world.run(`truncate order_index; ${emptyTables}`);
    return { open: world.open, remove: () => {}, wal: null };
  };
  const open = storePort(makeDatabase, false);
  for (let seed = 1; seed <= HISTORIES; seed += 1) {
    const { broken } = await play(makeSteps(seed), open);
    expect(broken, `${seed}`).toBeNull();
  }
});

test("orders are not found by a wrong index, nor at a large offset", async (world) => {
  const { store, one, other } = await distribute(world);
  const { orders } = store;
  for (const { id } of [one, other, one]) await orders.create(orderFields(id), null);
  const first = { limit: 1, offset: 0 };
  expect(await orders.list({ ...first, offset: 10_000 })).toMatchObject({ records: "" });
  const deep = Promise.resolve(orders.list({ ...first, offset: 10_001 }));
  await expect(deep).rejects.toThrow("offset must be at most 10,000 on this database: use after");
  expect(await store.check()).toEqual([]);
  const mismatch = "the index of orders does not match the orders";
  await world.run("update order_index set reference = '2' where id = 2");
  expect(await store.check()).toContain(mismatch);
  await world.run("delete from orders where id = 3");
  const missing = "the database is recovering from a failure";
  await expectRejection(Promise.resolve(orders.get(3)), "unavailable", missing);
});

test("an order is found when it moves between the reads of the index and of the order", async (world) => {
  const { store, one, other } = await distribute(world);
  const { id } = await store.orders.create(orderFields(one.id), null);
  const steps: (() => Promise<unknown>)[] = [];
  const before = (statement: string) =>
    /from orders/.test(statement) ? steps.shift()?.() : undefined;
  const { orders } = recordStatements(world.connect(), before, severalServers);
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
