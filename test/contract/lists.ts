// Compares lists with a model, an array that is filtered and sliced, while rows are created and deleted.
import { expect, test } from "bun:test";
import { type OrderStatus, orderStatuses } from "../../src/domain/order.ts";
import { LARGE_PAGE_BYTES, type Sort, sorts } from "../../src/domain/page.ts";
import { expectRejection } from "../support/expect-error.ts";
import { listed } from "../support/listed.ts";
import { isLong } from "../support/long.ts";
import { makeRandom } from "../support/random.ts";
import { expectPage } from "./expect-page.ts";
import {
  newUser,
  type Open,
  openWithClock,
  orderFields,
  parsed,
  setFields,
  userFields,
} from "./open.ts";

/** Rounds of changes, and how many of them are between two comparisons with the model. */
const ROUNDS = 60;
const ROUNDS_PER_CHECK = isLong ? 6 : 12;

interface Row {
  readonly id: number;
  readonly user_id: number;
  readonly version: number;
  readonly status: OrderStatus;
}

/** Concurrent writes may run in any order, so the model sorts its rows. */
const byId = (left: number, right: number) => left - right;

export function listsContract(open: Open): void {
  test("users.list agrees with a model while users are created and deleted", async () => {
    await using it = await openWithClock(open);
    const random = makeRandom(1);
    const { users } = it.store;
    const ids: number[] = [];
    async function expectUsers(limit: number, offset: number): Promise<void> {
      for (const sort of sorts) await expectPage(users.list, ids, { limit, offset, sort });
    }
    for (let round = 1; round <= ROUNDS; round += 1) {
      const created = Array.from({ length: random(12) }, () => users.create(userFields(), null));
      const gone = new Set(Array.from({ length: random(9) }, () => ids[random(ids.length + 1)]));
      const removed = [...gone].map((id) => users.remove(id ?? 0, null));
      for (const record of await Promise.all(created)) ids.push(record.id);
      ids.sort(byId);
      for (const user of await Promise.all(removed)) {
        if (user !== null) ids.splice(ids.indexOf(user.id), 1);
      }
      if (round % ROUNDS_PER_CHECK !== 0) continue;
      await expectUsers(1000, 0);
      await expectUsers(1 + random(10), random(ids.length + 3));
    }
    for (let offset = 0; offset <= ids.length; offset += 5) await expectUsers(3, offset);
    for (const limit of [7, ids.length - 1, ids.length, ids.length + 1])
      for (const sort of sorts)
        for (let at = 0; at < ids.length; at += limit) {
          const after = (sort === "id" ? ids : ids.toReversed())[at - 1] ?? 0;
          await expectPage(users.list, ids, { limit, offset: 0, after, sort });
        }
  });

  test("orders.list agrees with a model while orders are created and changed", async () => {
    await using it = await openWithClock(open);
    const random = makeRandom(2);
    const { users, orders } = it.store;
    const owners = [1, 2, 3];
    for (const _ of owners) await users.create(userFields(), null);
    const rows: Row[] = [];

    async function expectOrders(sort: Sort, userId?: number, status?: OrderStatus) {
      const filters = { ...(userId && { user_id: userId }), ...(status && { status }) };
      const matching = rows.filter((row) => Bun.deepMatch(filters, row));
      const ids = matching.map(({ id }) => id);
      const query = { limit: 1 + random(20), sort, ...filters };
      // The cursor need not be in this list, or exist.
      const after = random((rows.at(-1)?.id ?? 0) + 2);
      await expectPage(orders.list, ids, { ...query, offset: 0, after });
      await expectPage(orders.list, ids, { ...query, offset: random(ids.length + 3) });
    }

    for (let round = 1; round <= ROUNDS; round += 1) {
      const placed = Array.from({ length: random(8) }, () =>
        orders.create(orderFields(owners[random(3)] ?? 1, { total: random(1000) }), null),
      );
      for (const record of await Promise.all(placed)) rows.push(parsed(record));
      rows.sort((left, right) => byId(left.id, right.id));
      const changed = Array.from({ length: random(8) }, () => {
        const row = rows[random(rows.length || 1)];
        const status = orderStatuses[random(5)] ?? "paid";
        return orders.update(row?.id ?? 0, setFields({ status }), null);
      });
      for (const record of await Promise.all(changed)) {
        const order = parsed(record);
        const at = rows.findIndex(({ id }) => id === order?.id);
        const row = rows[at];
        if (order && row && order.version > row.version) rows[at] = order;
      }
      if (round % ROUNDS_PER_CHECK !== 0) continue;
      // Each filter in one order at a time: twice as many pages find no more.
      const sort = (round / ROUNDS_PER_CHECK) % 2 === 0 ? "id" : "-id";
      for (const userId of [undefined, ...owners, 4]) {
        for (const status of [undefined, ...orderStatuses])
          await expectOrders(sort, userId, status);
      }
    }
    await expectOrders("id");
    // Each page of a cluster asks all shards.
  }, 120_000);

  test("a page is unavailable when it exceeds 256 KiB and the memory has no room for more", async () => {
    await using it = await openWithClock(open);
    const { users, orders, changes } = it.store;
    // 30 of them are 15 kB.
    const value = "x".repeat(500);
    const metadata = Object.fromEntries(Array.from({ length: 30 }, (_, at) => [`${at}`, value]));
    const owner = await newUser(it.store, { metadata });
    const created = Array.from({ length: 30 }, () => users.create(userFields({ metadata }), null));
    const ids = (await Promise.all(created)).map(({ id }) => id);
    await Promise.all(ids.map(() => orders.create(orderFields(owner.id, { metadata }), null)));
    const memory = { room: () => LARGE_PAGE_BYTES, hold: () => null };
    const pages = [
      (limit: number) => users.list({ limit, offset: 0 }, "a", memory),
      (limit: number) => users.list({ limit, offset: 1, sort: "-id" }, "a", memory),
      (limit: number) => users.list({ limit, offset: 0, id: ids }, "a", memory),
      (limit: number) => orders.list({ limit, offset: 0, user_id: owner.id }, "a", memory),
      (limit: number) => orders.list({ limit, offset: 0, after: 0 }, "a", memory),
      (limit: number) => changes.list({ limit, offset: 0, include: "record" }, "a", memory),
    ];
    for (const page of pages) {
      for (const limit of [20, 1000])
        await expectRejection((async () => page(limit))(), "unavailable", /^too many large pages/);
      expect((await listed(page(10))).rows).toHaveLength(10);
    }
  });
}
