import { describe, expect, test } from "bun:test";
import { FOLD_LOCK } from "../../src/postgres/counts.ts";
import { newUser, orderFields, setPaid } from "../contract/open.ts";
import { cluster, makeHarness } from "./postgres-harness.ts";

/** Damage, the statement that causes it, and the problems that `check` must report. */
const damages: [string, string, string[]][] = [
  ["nothing is damaged", "select 1", []],
  ["a count is too high", "insert into counts (users) values (1)", ["the total of users is wrong"]],
  [
    "counts are missing",
    "delete from counts",
    ["the total of paid is wrong", "the total of pending is wrong", "the total of users is wrong"],
  ],
  [
    "an order's total differs from the sum of its items",
    "update orders set total = total + 1 where id = 2",
    ["the total of order 2 does not match its items"],
  ],
  [
    "an order refers to a missing user",
    "set session_replication_role = replica; update orders set user_id = 9 where id = 1",
    ["order 1 refers to a missing user"],
  ],
  [
    "records have more than 64 KiB",
    `
      update users set metadata = format('{"a":"%s"}', repeat('x', 65536)) where id = 1;
      update orders set metadata = format('{"a":"%s"}', repeat('x', 65536)) where id = 2
    `,
    [
      "row 1 of users is larger than 65536 bytes of JSON",
      "row 2 of orders is larger than 65536 bytes of JSON",
    ],
  ],
  [
    "items are malformed, and another problem exists",
    `
      alter table orders drop constraint orders_items_check;
      update orders set items = '[{' where id = 1;
      select setval('orders_id_seq', 1)
    `,
    [
      "cannot check the totals of orders against their items: invalid input syntax for type json",
      "the sequence of orders is behind the last id and would assign it again",
    ],
  ],
  [
    "a table is missing, and another problem exists",
    "drop table counts cascade; select setval('orders_id_seq', 1)",
    [
      'cannot check the totals: relation "counts" does not exist',
      "the sequence of orders is behind the last id and would assign it again",
    ],
  ],
];

describe.if(cluster !== null)("check", () => {
  test.each(damages)("reports the problems when %s", async (_what, damage, findings) => {
    await using world = await makeHarness();
    const store = await world.open();
    const { id } = await newUser(store);
    await newUser(store);
    await store.users.remove(2, null);
    const items = [
      { sku: "A", quantity: 1_000_000, unit_price: 9_007_199_254 },
      { sku: "B", quantity: 740_991, unit_price: 1 },
    ];
    const total = Number.MAX_SAFE_INTEGER;
    await store.orders.place(orderFields(id, { items, total }), null);
    await store.orders.place(orderFields(id), null);
    await store.orders.update(1, setPaid, null);
    // So that no fold is running, which would repair missing counts.
    await using _ = await world.hold(`select pg_advisory_xact_lock(${FOLD_LOCK})`);
    await world.run(damage);
    expect(await store.check()).toEqual(findings);
  });

  test("delete from orders fails: the database rejects deleting orders", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    await store.orders.place(orderFields((await newUser(store)).id), null);
    await expect(world.run("delete from orders")).rejects.toThrow("orders are never deleted");
  });
});
