import { expect, test } from "bun:test";
import type { Order, OrderQuery } from "../../src/domain/order.ts";
import type { Store } from "../../src/domain/store.ts";
import { expectRejection } from "../support/expect-error.ts";
import { listed } from "../support/listed.ts";
import { all, newUser, type Open, openWithClock, orderFields, parsed, setFields } from "./open.ts";

async function newOrder(store: Store, userId: number, reference: string | null): Promise<Order> {
  return parsed(await store.orders.create(orderFields(userId, { reference }), null));
}

export function referencesContract(open: Open): void {
  test("a reference belongs to one user and to one order when it is compared by code points", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    const { users, orders } = store;
    const ann = await newUser(store, { reference: "K-1" });
    const bob = await newUser(store, { reference: "k-1" });
    await newUser(store);
    await expectRejection(newUser(store, { reference: "K-1" }), "reference_taken");
    await expectRejection(
      users.update(bob.id, (user) => ({ ...user, reference: "K-1" }), null),
      "reference_taken",
    );
    const both = newUser(store, { email: ann.email, reference: "K-1" });
    await expectRejection(both, "email_taken");
    const order = await newOrder(store, ann.id, "K-1");
    const other = await newOrder(store, ann.id, null);
    await expectRejection(newOrder(store, ann.id, "K-1"), "reference_taken");
    const take = setFields({ reference: "K-1", status: "paid" });
    await expectRejection(orders.update(other.id, take, null), "reference_taken");
    expect(parsed(await orders.get(other.id))).toEqual(other);
    expect((await listed(users.list({ ...all, reference: "K-1" }))).rows).toEqual([ann]);
    expect((await listed(orders.list({ ...all, reference: "K-1" }))).rows).toEqual([order]);
    expect(await listed(users.list({ ...all, reference: "K" }))).toEqual({ rows: [], total: 0 });
    expect(await store.check()).toEqual([]);
  });

  test("a reference is free again when its record has another one, none, or was deleted", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    const { users, orders } = store;
    const ann = await newUser(store, { reference: "1" });
    await users.update(ann.id, (user) => ({ ...user, reference: "2" }), null);
    const bob = await newUser(store, { reference: "1" });
    await users.remove(bob.id, null);
    const third = await newUser(store, { reference: "1" });
    const order = await newOrder(store, ann.id, "1");
    const cleared = await orders.update(order.id, setFields({ reference: null }), null);
    expect(parsed(cleared)?.reference).toBe(null);
    await newOrder(store, ann.id, "1");
    const found = await listed(users.list({ ...all, reference: "1" }));
    expect(found.rows.map(({ id }) => id)).toEqual([third.id]);
  });

  test("a reference is given once when many creates of it run at the same time", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    const { id } = await newUser(store);
    const calls = Array.from({ length: 20 }, (_, at) => [
      newUser(store, { reference: `u${at % 2}` }),
      newOrder(store, id, `o${at % 2}`),
    ]);
    const results = await Promise.allSettled(calls.flat());
    const made = results.filter(({ status }) => status === "fulfilled");
    expect(made).toHaveLength(4);
    for (const result of results) {
      if (result.status === "rejected") expect(result.reason.code).toBe("reference_taken");
    }
    const total = (reference: string) => store.orders.list({ ...all, reference });
    expect([(await total("o0")).total, (await total("o1")).total]).toEqual([1, 1]);
    expect(await store.check()).toEqual([]);
  });

  test("a list by ids has those that exist and match the other filters", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    const ann = await newUser(store, { reference: "A" });
    const bob = await newUser(store);
    const orders: Order[] = [];
    for (const user of [ann, bob, ann, bob, ann]) orders.push(await newOrder(store, user.id, null));
    await store.orders.update(3, setFields({ status: "paid" }), null);
    const id = [5, 3, 1, 9, Number.MAX_SAFE_INTEGER];
    async function ids(query: Partial<OrderQuery>) {
      const page = await listed(store.orders.list({ ...all, id, ...query }));
      return [page.rows.map((order) => order.id), page.total, page.nextAfter];
    }
    expect(await ids({})).toEqual([[1, 3, 5], 3, undefined]);
    expect(await ids({ sort: "-id", limit: 2 })).toEqual([[5, 3], 3, undefined]);
    expect(await ids({ offset: 1, limit: 1 })).toEqual([[3], 3, undefined]);
    expect(await ids({ after: 1, limit: 1 })).toEqual([[3], 3, 3]);
    expect(await ids({ after: 5, sort: "-id" })).toEqual([[3, 1], 3, undefined]);
    expect(await ids({ status: "paid" })).toEqual([[3], 1, undefined]);
    expect(await ids({ user_id: bob.id })).toEqual([[], 0, undefined]);
    expect(await ids({ id: [2, 4], user_id: bob.id })).toEqual([[2, 4], 2, undefined]);
    const users = await listed(store.users.list({ ...all, id: [2, 1], reference: "A" }));
    expect(users).toEqual({ rows: [ann], total: 1 });
    const email = await listed(store.users.list({ ...all, id: [1], email: bob.email }));
    expect(email).toEqual({ rows: [], total: 0 });
  });
}
