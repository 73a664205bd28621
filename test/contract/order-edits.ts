import { expect, test } from "bun:test";
import { orderStatuses, patchOrder } from "../../src/domain/order.ts";
import type { Store } from "../../src/domain/store.ts";
import { expectRejection } from "../support/expect-error.ts";
import { listed } from "../support/listed.ts";
import { makeRandom } from "../support/random.ts";
import { all, newUser, type Open, openWithClock, orderFields, parsed } from "./open.ts";

async function idsOf(store: Store, userId: number): Promise<readonly number[]> {
  const { rows, total } = await listed(store.orders.list({ ...all, user_id: userId }));
  expect(rows).toHaveLength(total);
  const pages = await listed(store.orders.list({ limit: 1, offset: total - 1, user_id: userId }));
  if (total > 0) expect(pages.rows.map(({ id }) => id)).toEqual([rows.at(-1).id]);
  return rows.map(({ id }) => id);
}

export function orderEditsContract(open: Open): void {
  test("orders.update sets refunded up to the total, and never less than before", async () => {
    await using it = await openWithClock(open);
    const { orders } = it.store;
    const user = await newUser(it.store);
    const record = await orders.create(orderFields(user.id), null);
    const refund = (refunded: number) =>
      orders.update(record.id, (order) => patchOrder(order, { refunded }), null);
    expect(parsed(await refund(40))).toMatchObject({ refunded: 40, version: 2 });
    expect(parsed(await refund(40))).toMatchObject({ refunded: 40, version: 2 });
    for (const refunded of [39, 101]) {
      const error = await expectRejection(refund(refunded), "invalid_refund");
      expect(error.allowed).toEqual({ min: 40, max: 100 });
    }
    expect(parsed(await refund(100))).toMatchObject({ refunded: 100, version: 3 });
  });

  test("orders.update moves an order to another user, and the totals and pages of both are exact", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    const [ann, bob] = [await newUser(store), await newUser(store)];
    const ids = [1, 2, 3, 4, 5, 6];
    for (const id of ids) {
      const { id: userId } = id % 2 === 1 ? ann : bob;
      await store.orders.create(orderFields(userId, { reference: `R${id}` }), null);
    }
    const move = (id: number, userId: number) =>
      store.orders.update(
        id,
        (order) => patchOrder(order, { user_id: userId, status: "paid" }),
        null,
      );
    expect(parsed(await move(3, bob.id))).toMatchObject({ user_id: bob.id, version: 2 });
    expect([await idsOf(store, ann.id), await idsOf(store, bob.id)]).toEqual([
      [1, 5],
      [2, 3, 4, 6],
    ]);
    const paid = await listed(store.orders.list({ ...all, user_id: bob.id, status: "paid" }));
    expect(paid.rows).toMatchObject([{ id: 3, user_id: bob.id, reference: "R3", status: "paid" }]);
    expect(parsed(await store.orders.get(3))).toEqual(paid.rows[0]);
    const unknown = await expectRejection(move(4, 99), "validation_failed");
    expect(unknown.message).toBe("Validation failed: user_id must be an existing user");
    for (const id of [1, 5]) await move(id, bob.id);
    expect([await idsOf(store, ann.id), await idsOf(store, bob.id)]).toEqual([[], ids]);
    await store.users.remove(ann.id, null);
    await expectRejection(store.users.remove(bob.id, null), "user_has_orders");
    const placed = await store.orders.create(orderFields(bob.id), null);
    expect(await idsOf(store, bob.id)).toEqual([...ids, placed.id]);
    expect(await store.check()).toEqual([]);
  });

  test("orders.update agrees with a model when orders move at random", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    const random = makeRandom(7);
    const users = [await newUser(store), await newUser(store), await newUser(store)];
    const owners = new Map<number, number>();
    const anyUser = () => users[random(users.length)]?.id ?? 0;
    for (let step = 0; step < 60; step += 1) {
      const user = anyUser();
      if (random(3) === 0 || owners.size === 0) {
        const record = await store.orders.create(orderFields(user), null);
        owners.set(record.id, user);
      } else {
        const id = 1 + random(owners.size);
        const status = orderStatuses[random(5)];
        await store.orders.update(
          id,
          (order) => ({ ...order, user_id: user, status: status ?? "paid" }),
          null,
        );
        owners.set(id, user);
      }
    }
    for (const { id } of users) {
      const owned = [...owners].filter(([, owner]) => owner === id).map(([order]) => order);
      expect(await idsOf(store, id)).toEqual(owned);
    }
    expect(await store.check()).toEqual([]);
  });
}
