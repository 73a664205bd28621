// The statements for several servers on the tables of one, without Citus: their results, not their plans.
import { describe, expect, test } from "bun:test";
import type { Change } from "../../src/domain/change.ts";
import { distribution } from "../../src/postgres/server/citus.ts";
import { newUser, orderFields, parsed, setFields } from "../contract/open.ts";
import { cluster, makeHarness } from "./postgres-harness.ts";

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
    const placed = await Promise.all(
      [user, other, user].map(({ id }) => store.orders.create(orderFields(id), null)),
    );
    const records = placed;
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
    expect(deep).rejects.toThrow("offset must be at most 10,000 on this database: use after");
    expect(store.users.remove(user.id, null)).rejects.toThrow("user has orders");
    const imported = { ...orderFields(other.id), reference: "1" };
    expect(await store.bulk.orders.import([imported])).toEqual([{ outcome: "created" }]);
    expect(parsed(await store.orders.get(4))?.user_id).toBe(other.id);
    // Many are looked up at once.
    const changes = await store.changes.list({ limit: 3, offset: 2, include: "record" });
    const found = JSON.parse(`[${changes.records}]`).map(({ record }: Change) => record);
    expect(found).toEqual(changed.map(parsed));
    expect(await store.check()).toEqual([]);

    await it.run(`delete from orders where id = ${ids[2]}`);
    expect(Promise.resolve(store.orders.get(ids[2] ?? 0))).rejects.toThrow(
      "the database is recovering from a failure",
    );
    expect(await store.check()).toContain("the index of orders does not match the orders");
  });
});
