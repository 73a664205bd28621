// The statements for several servers on the tables of one, without Citus: their results, not their plans.
import { describe, expect, test } from "bun:test";
import type { Change } from "../../src/domain/change.ts";
import type { OrderEdit } from "../../src/domain/order.ts";
import { createContext } from "../../src/postgres/engine/context.ts";
import { distribution, severalServers } from "../../src/postgres/server/citus.ts";
import { createOrderStore } from "../../src/postgres/tables/orders.ts";
import { all, newUser, orderFields, parsed, setFields } from "../contract/open.ts";
import { expectRejection } from "../support/expect-error.ts";
import { listed } from "../support/listed.ts";
import { cluster, makeHarness } from "./postgres-harness.ts";
import { recordStatements } from "./recorded.ts";

const withIndex = distribution
  .filter((statement) => !/^select|^set|citus/.test(statement))
  .join(";");

describe.if(cluster !== null)("several servers", () => {
  test("orders are created, read, listed, changed and checked by their index", async () => {
    await using it = await makeHarness();
    await it.run(withIndex);
    const store = await it.open();
    const user = await newUser(store);
    const other = await newUser(store);
    const records = await Promise.all(
      [user, other, user].map(({ id }) => store.orders.create(orderFields(id), null)),
    );
    const ids = records.map(({ id }) => id);
    expect(await it.run("select id::int, user_id::int from order_index order by id")).toEqual(
      records.map(({ id, json }) => ({ id, user_id: JSON.parse(json).user_id })),
    );
    expect(await store.orders.get(ids[0] ?? 0)).toEqual(records[0] ?? null);
    expect(await Promise.all(ids.map((id) => store.orders.get(id)))).toEqual(records);
    expect(await store.orders.get(99)).toBeNull();

    const paid = setFields({ status: "paid" });
    const changed = await Promise.all(ids.map((id) => store.orders.update(id, paid, null)));
    expect(changed.map((record) => parsed(record)?.version)).toEqual([2, 2, 2]);
    const page = { limit: 1, offset: 0 };
    for (const query of [
      { user_id: user.id },
      { user_id: user.id, after: 0 },
      { status: "paid" as const },
    ]) {
      const { total, records: text, nextAfter } = await store.orders.list({ ...page, ...query });
      expect({ total, text }).toEqual({
        total: "user_id" in query ? 2 : 3,
        text: changed[0]?.json ?? "",
      });
      expect(nextAfter).toBe("after" in query ? (ids[0] ?? 0) : null);
    }
    expect(await store.orders.list({ limit: 1, offset: 10_000 })).toMatchObject({ records: "" });
    const deep = Promise.resolve(store.orders.list({ limit: 1, offset: 10_001 }));
    await expect(deep).rejects.toThrow("offset must be at most 10,000 on this database: use after");
    await expect(store.users.remove(user.id, null)).rejects.toThrow("user has orders");
    const imported = { ...orderFields(other.id), reference: "1" };
    expect(await store.bulk.orders.import([imported])).toEqual([{ outcome: "created" }]);
    expect(parsed(await store.orders.get(4))?.user_id).toBe(other.id);
    // Many are looked up at once.
    const changes = await store.changes.list({ limit: 3, offset: 2, include: "record" });
    const found = JSON.parse(`[${changes.records}]`).map(({ record }: Change) => record);
    expect(found).toEqual(changed.map(parsed));
    const set = (id: number, edit: Partial<OrderEdit>) =>
      store.orders.update(id, setFields(edit), null);
    await expectRejection(set(1, { user_id: other.id, reference: "1" }), "reference_taken");
    await set(4, { reference: null });
    const moved = parsed(await set(1, { user_id: other.id, reference: "1", refunded: 1 }));
    expect(moved).toMatchObject({ version: 3, user_id: other.id, reference: "1", refunded: 1 });
    const query = { ...page, reference: "1", user_id: other.id };
    expect((await listed(store.orders.list(query))).rows).toEqual([moved]);
    const indexed =
      "select id::int, user_id::int, reference from order_index where id in (1, 4) order by id";
    expect(await it.run(indexed)).toEqual([
      { id: 1, user_id: other.id, reference: "1" },
      { id: 4, user_id: other.id, reference: null },
    ]);
    expect(await store.check()).toEqual([]);

    const mismatch = "the index of orders does not match the orders";
    await it.run("update order_index set reference = '2' where id = 4");
    expect(await store.check()).toContain(mismatch);
    await it.run(`delete from orders where id = ${ids[2]}`);
    await expect(Promise.resolve(store.orders.get(ids[2] ?? 0))).rejects.toThrow(
      "the database is recovering from a failure",
    );
    expect(await store.check()).toContain(mismatch);
  });

  test("an order is found when it moves between the reads of the index and of the order", async () => {
    await using it = await makeHarness();
    await it.run(withIndex);
    const store = await it.open();
    const [ann, bob] = [await newUser(store), await newUser(store)];
    const { id } = await store.orders.create(orderFields(ann.id), null);
    const steps: (() => Promise<unknown>)[] = [];
    const { db } = recordStatements(it.connect(), (statement) =>
      /from orders/.test(statement) ? steps.shift()?.() : undefined,
    );
    const context = createContext({ db, placement: severalServers, now: () => new Date() });
    const orders = createOrderStore(context);

    steps.push(() => store.orders.update(id, setFields({ user_id: bob.id }), null));
    expect(parsed(await orders.get(id))).toMatchObject({ user_id: bob.id, version: 2 });
    // The commit of the coordinator is visible before those of the workers.
    await it.run(`update order_index set user_id = ${ann.id} where id = ${id}`);
    const appear = `update orders set user_id = ${ann.id} where id = ${id}`;
    steps.push(
      async () => {},
      () => it.run(appear),
    );
    const { rows } = await listed(orders.list({ ...all, id: [id] }));
    expect([rows, steps]).toMatchObject([[{ id, user_id: ann.id }], []]);
  });
});
