// Lists of a user whose orders are numbered in several blocks.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import type { Store } from "../../src/domain/store.ts";
import { expectPage } from "../contract/expect-page.ts";
import { newUser, orderFields, setFields, time } from "../contract/open.ts";
import { makeDirectory } from "../support/directory.ts";
import { makeRandom } from "../support/random.ts";
import { openDatabase, query } from "./open-database.ts";

const BLOCK = 2 ** 15;
/** New orders fill half a block. */
const HALF = BLOCK / 2;
/** Of two users, by turns. */
const ORDERS = 4 * HALF;

/** The other fields of an order that `fill` has stored. */
const unchanged = {
  ...{ currency: "EUR", items: [], total: 0, refunded: 0, status: "pending" as const },
  ...{ metadata: {}, version: 1, created_at: time, updated_at: time },
};

/** Fills a database as if the first user had got all odd ids one by one, and the second one all even ids. */
function fill(path: string, positionOf: string): void {
  using db = new Database(path);
  db.run(`
    insert into orders (user_id, user_position, currency, items, total, status, metadata, version,
      created_at, updated_at)
    with recursive n (at) as (select 0 union all select at + 1 from n where at < ${ORDERS - 1})
    select 1 + at % 2, ${positionOf}, 'EUR', '[]', 0, 'pending', '{}', 1, '${time}', '${time}'
    from n
  `);
}

/** Expects pages of the user to be as the model has its orders, which are ascending. */
async function expectPages(store: Store, userId: number, ids: readonly number[]): Promise<void> {
  const last = ids.at(-1) ?? 0;
  const offsets = [0, 1, HALF - 1, HALF, HALF + 1, BLOCK, ids.length - 1, ids.length];
  const cursors = [0, 1, 2, BLOCK, BLOCK + 1, BLOCK + 2, last - 1, last, last + 1];
  for (const sort of ["id", "-id"] as const) {
    const list = { user_id: userId, sort, limit: 3, offset: 0 };
    for (const offset of offsets) await expectPage(store.orders.list, ids, { ...list, offset });
    for (const after of cursors) await expectPage(store.orders.list, ids, { ...list, after });
  }
}

const idsOf = (model: ReadonlyMap<number, number>, userId: number) =>
  [...model].flatMap(([id, user]) => (user === userId ? [id] : [])).sort((a, b) => a - b);

async function openWithUsers(path: string) {
  const store = await openDatabase(path);
  for (const email of ["a@b.cd", "b@b.cd"]) await newUser(store, { email });
  return store;
}

test("a user's orders are numbered in blocks when they are created, moved and imported", async () => {
  using directory = makeDirectory();
  const path = directory.at("a.db");
  await using store = await openWithUsers(path);
  fill(path, `at / 2 / ${HALF} * ${BLOCK} + at / 2 % ${HALF} + 1`);
  const model = new Map(Array.from({ length: ORDERS }, (_, at) => [at + 1, 1 + (at % 2)]));
  for (const userId of [1, 2]) {
    // The last blocks are full.
    const { id } = await store.orders.create(orderFields(userId), null);
    model.set(id, userId);
    await expectPages(store, userId, idsOf(model, userId));
  }
  const positions = `select max(user_position) from orders group by user_id`;
  expect(query(path, positions)).toEqual([2 * BLOCK + 1, 2 * BLOCK + 1]);

  async function moveTogether(ids: number[]): Promise<void> {
    const orders = ids.map((id) => ({ ...unchanged, id, user_id: 3 - (model.get(id) ?? 0) }));
    const results = await store.bulk.orders.import(orders, { update: true });
    expect(results).toEqual(orders.map(() => ({ outcome: "updated" })));
    for (const { id, user_id } of orders) model.set(id, user_id);
  }

  // The last one belongs between the first order of a block and the one that has just moved behind it.
  await moveTogether([BLOCK + 3]);
  await moveTogether([BLOCK + 4, BLOCK + 2]);
  await expectPages(store, 1, idsOf(model, 1));
  const random = makeRandom(5);
  const edges = [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 2, ORDERS, ORDERS + 1, ORDERS + 2];
  for (const id of [...edges, ...edges.map(() => 1 + random(ORDERS))]) {
    const userId = 3 - (model.get(id) ?? 0);
    await store.orders.update(id, setFields({ user_id: userId }), null);
    model.set(id, userId);
  }
  for (const userId of [1, 2]) await expectPages(store, userId, idsOf(model, userId));
  await moveTogether(Array.from({ length: 300 }, (_, at) => BLOCK + 150 - ((at * 7) % 300)));
  for (const userId of [1, 2]) await expectPages(store, userId, idsOf(model, userId));
  expect(await store.check()).toEqual([]);
});

test("all orders of a user are numbered anew when one moves into a block that is full", async () => {
  using directory = makeDirectory();
  const path = directory.at("a.db");
  await using store = await openWithUsers(path);
  fill(path, "at / 2 + 1");
  const model = new Map(Array.from({ length: ORDERS }, (_, at) => [at + 1, 1 + (at % 2)]));
  await store.orders.update(BLOCK, setFields({ user_id: 1 }), null);
  model.set(BLOCK, 1);
  for (const userId of [1, 2]) await expectPages(store, userId, idsOf(model, userId));
  const last = "select max(user_position) from orders where user_id = 1";
  expect(query(path, last)).toEqual([2 * BLOCK + 1]);
  expect(await store.check()).toEqual([]);
});
