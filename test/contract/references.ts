import { expect, test } from "bun:test";
import type { Order, OrderQuery } from "../../src/domain/order.ts";
import type { Store } from "../../src/domain/store.ts";
import { listed } from "../support/listed.ts";
import { all, newUser, type Open, openWithClock, orderFields, parsed, setFields } from "./open.ts";

async function newOrder(store: Store, userId: number, reference: string | null): Promise<Order> {
  return parsed(await store.orders.create(orderFields(userId, { reference }), null));
}

export function referencesContract(open: Open): void {
  test("a reference or an email is given once when many creates of it run at the same time", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    const { id } = await newUser(store);
    const calls = Array.from({ length: 20 }, (_, at) => [
      newUser(store, { reference: `u${at % 2}` }),
      newUser(store, { email: `${at % 2}@b.cd` }),
      newOrder(store, id, `o${at % 2}`),
    ]);
    const results = await Promise.allSettled(calls.flat());
    for (const [kind, code] of ["reference_taken", "email_taken", "reference_taken"].entries()) {
      const ofKind = results.filter((_, at) => at % 3 === kind);
      const reasons = ofKind.flatMap((result) =>
        result.status === "rejected" ? result.reason.code : [],
      );
      expect(reasons).toEqual(Array(18).fill(code));
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
