// One user can have very many orders. With a status, they are read in several turns of the event loop.
import { Database } from "bun:sqlite";
import { expect, spyOn, test } from "bun:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { OrderStatus } from "../../src/order.ts";
import { sorts } from "../../src/page.ts";
import { expectPage } from "../contract/expect-page.ts";
import { newUser, setFields } from "../contract/open.ts";
import { makeDirectory, type TemporaryDirectory } from "../directory.ts";
import { listed } from "../listed.ts";
import { openDatabase } from "./open-database.ts";

const ORDERS = 10_000;
/** Canceled orders are at both ends and in the middle, with long gaps. */
const canceledIds = [1, 2, 4_999, 5_000, 5_001, ORDERS];

function statusOf(id: number): OrderStatus {
  if (canceledIds.includes(id)) return "canceled";
  return id % 3 === 0 ? "paid" : "pending";
}

/** A store in which user 1 has all orders, and user 2 none. */
async function openWithOrders(directory: TemporaryDirectory) {
  const path = directory.at("a.db");
  const store = await openDatabase(path);
  for (const _ of [1, 2]) await newUser(store);
  using db = new Database(path, { strict: true });
  const insert = db.prepare(`
    insert into orders (
      user_id, user_position, currency, items, total, status, metadata, version, created_at, updated_at
    )
    values (1, $id, 'EUR', '[]', 0, $status, '{}', 1, '2026-11-20T18:57:03.120Z', '2026-11-20T18:57:03.120Z')
  `);
  db.transaction(() => {
    for (let id = 1; id <= ORDERS; id += 1) insert.run({ id, status: statusOf(id) });
  })();
  return store;
}

/** @returns the number of turns of the event loop until the promise is settled */
async function countTurns(promise: unknown): Promise<number> {
  let isSettled = false;
  const settled = Promise.resolve(promise).finally(() => {
    isSettled = true;
  });
  let turns = 0;
  for (; !isSettled; turns += 1) await nextTurn();
  await settled;
  return turns;
}

test("orders.list agrees with a model when a user has very many orders in a status", async () => {
  using directory = makeDirectory();
  await using store = await openWithOrders(directory);
  for (const status of ["pending", "paid", "canceled", "delivered"] as const) {
    const all = Array.from({ length: ORDERS }, (_, at) => at + 1);
    const ids = all.filter((id) => statusOf(id) === status);
    const last = Math.max(ids.length - 1, 0);
    for (const sort of sorts) {
      for (const limit of [1, 3, 700]) {
        const query = { user_id: 1, status, sort, limit };
        for (const offset of [0, 2, 3, 1_365, 2_048, 5_000, last, ids.length])
          await expectPage(store.orders.list, ids, { ...query, offset });
        for (const after of [0, 1, 2_047, 2_048, 4_999, ORDERS - 1, ORDERS, ORDERS + 5])
          await expectPage(store.orders.list, ids, { ...query, offset: 0, after });
      }
    }
  }
});

test("orders.list lets other requests run when it counts the orders of a user in a status", async () => {
  using directory = makeDirectory();
  await using store = await openWithOrders(directory);
  // The time that a page takes decides how often it ends the turn. Without time, it does so at every opportunity.
  using _clock = spyOn(performance, "now").mockReturnValue(0);
  const list = (status: OrderStatus, userId = 1) =>
    store.orders.list({ user_id: userId, status, limit: 10, offset: 0 });
  expect(await countTurns(list("delivered"))).toBeGreaterThanOrEqual(4);
  // It also reads in several turns, since canceled orders are in three ranges.
  expect(await countTurns(list("canceled"))).toBeGreaterThanOrEqual(6);
  expect(list("delivered", 2)).not.toBeInstanceOf(Promise);
});

test("orders.list returns a page and a total from one snapshot when it takes several turns", async () => {
  using directory = makeDirectory();
  await using store = await openWithOrders(directory);
  const { orders } = store;
  const page = listed(orders.list({ user_id: 1, status: "canceled", limit: 100, offset: 0 }));
  const change = (id: number, status: OrderStatus) =>
    orders.update(id, setFields({ status }), null);
  await Promise.all([change(2, "paid"), change(ORDERS, "paid"), change(9_999, "canceled")]);
  const { rows, total } = await page;
  expect(rows.map(({ id }) => id)).toEqual(canceledIds);
  expect(total).toBe(canceledIds.length);
});
