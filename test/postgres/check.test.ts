import { describe, expect, test } from "bun:test";
import { newUser, orderFields, setPaid } from "../contract/open.ts";
import { cluster, makeHarness } from "./postgres-harness.ts";

/** Damage, the statement that causes it, and the problems that `check` must report. */
const damages: [string, string, string[]][] = [
  ["nothing is damaged", "select 1", []],
  [
    "totals are wrong",
    "update change_feed set totals = array[totals[1] + 1, totals[4], totals[3], totals[4], totals[5], totals[6]], xid = txid_current()",
    ["the total of pending is wrong", "the total of users is wrong"],
  ],
  [
    "an order's total differs from the sum of its items",
    "update orders set total = total - 1 where id = 1",
    ["the total of order 1 does not match its items"],
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
    "update orders set items = '[{' where id = 1; select setval('orders_id_seq', 1)",
    [
      "cannot check the totals of orders against their items: invalid input syntax for type json",
      "the sequence of orders is behind the last id and would assign it again",
    ],
  ],
  [
    "a table is missing, and another problem exists",
    "drop table tokens; select setval('users_id_seq', 1)",
    [
      "the sequence of users is behind the last id and would assign it again",
      'cannot check the sequence of tokens: relation "tokens" does not exist',
    ],
  ],
  [
    "a change is missing",
    "delete from changes where id = 2",
    ["the changes are not consecutive: 6 of them from 1 to 7"],
  ],
  [
    "a change has a wrong version",
    "update changes set version = 5 where id = 7; update orders set version = 5 where id = 1",
    ["the changes of order 1 do not ascend by one: version 5 follows 1"],
  ],
  [
    "a record has another version than its last change",
    "update users set version = 7 where id = 1",
    ["the last change of user 1 does not agree with the record"],
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
  [
    "a deleted record exists",
    "update changes set type = 3 where record_id = 3 and type = 1",
    ["the last change of user 3 does not agree with the record"],
  ],
];

describe.if(cluster !== null)("check", () => {
  test.each(damages)("reports the problems when %s", async (_what, damage, findings) => {
    await using world = await makeHarness();
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
    await store.orders.update(1, setPaid, null);
    await store.changes.list({ limit: 1, offset: 0 });
    await world.run(damage);
    expect(await store.check()).toEqual(findings);
  });
});
