import { expect } from "bun:test";
import { orderStatuses } from "../../src/domain/order.ts";
import { newUser, orderFields, setFields } from "../contract/open.ts";
import { test } from "./postgres-harness.ts";

/** Damage, the statements that cause it, and the problems that `check` must report. */
const damages: [string, string, string[]][] = [
  ["nothing is damaged", "select 1", []],
  [
    "totals are wrong, and records are too large",
    `
      update change_feed
      set totals = array[totals[1] + 1, totals[4], totals[3], totals[4], totals[5], totals[6]], xid = txid_current();
      update orders set total = total - 1 where id = 1;
      update users set metadata = format('{"a":"%s"}', repeat('x', 65536)) where id = 1;
      update orders set metadata = format('{"a":"%s"}', repeat('x', 65536)) where id = 2
    `,
    [
      "the total of pending is wrong",
      "the total of users is wrong",
      "the total of order 1 does not match its items",
      "row 1 of users is larger than 65536 bytes of JSON",
      "row 2 of orders is larger than 65536 bytes of JSON",
    ],
  ],
  [
    "rows or changes are missing, and versions are wrong",
    `
      set session_replication_role = replica;
      update orders set user_id = 9, version = 5 where id = 1;
      delete from changes where id = 2;
      update changes set version = 5 where id = 7;
      update users set version = 7 where id = 1;
      update changes set type = 3 where record_id = 3 and type = 1
    `,
    [
      "order 1 refers to a missing user",
      "the changes are not consecutive: 11 of them from 1 to 12",
      "the changes of order 1 do not ascend by one: version 5 follows 1",
      "the last change of user 1 does not agree with the record",
      "the last change of user 3 does not agree with the record",
    ],
  ],
  [
    "items are malformed, a table is missing, and other problems exist",
    `
      update orders set items = '[{' where id = 1;
      drop table tokens;
      select setval('orders_id_seq', 1), setval('users_id_seq', 1)
    `,
    [
      "cannot check the totals of orders against their items: invalid input syntax for type json",
      "the sequence of users is behind the last id and would assign it again",
      "the sequence of orders is behind the last id and would assign it again",
      'cannot check the sequence of tokens: relation "tokens" does not exist',
    ],
  ],
  [
    "a deletion is not recorded, and would let the id be assigned again",
    "delete from users where id = 3; select setval('users_id_seq', 2)",
    [
      "the total of users is wrong",
      "the sequence of users is behind the last id and would assign it again",
      "the last change of user 3 does not agree with the record",
    ],
  ],
];

for (const [what, damage, findings] of damages)
  test(`check reports the problems when ${what}`, async (world) => {
    const store = await world.open();
    const { id } = await newUser(store);
    const gone = await newUser(store);
    await newUser(store);
    await store.users.remove(gone.id, null);
    const items = [
      { sku: "A", quantity: 1_000_000, unit_price: 9_007_199_254 },
      { sku: "B", quantity: 740_991, unit_price: 1 },
    ];
    const total = Number.MAX_SAFE_INTEGER;
    await store.orders.create(orderFields(id, { items, total }), null);
    await store.orders.create(orderFields(id), null);
    await store.orders.update(1, setFields({ status: "paid" }), null);
    for (const status of [...orderStatuses.slice(1), "pending"] as const)
      await store.orders.update(2, setFields({ status }), null);
    await store.changes.list({ limit: 1, offset: 0 });
    await world.run(damage);
    expect(await store.check()).toEqual(findings);
  });
