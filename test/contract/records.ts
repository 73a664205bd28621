import { expect, test } from "bun:test";
import type { Order } from "../../src/domain/order.ts";
import { listed } from "../support/listed.ts";
import { all, newUser, type Open, openWithClock, orderFields, rename, time } from "./open.ts";

export function recordsContract(open: Open): void {
  const sort = "-id";
  test.each<[object, boolean]>([
    [{}, true],
    [{ after: 1 }, true],
    [{ sort }, true],
    [{ sort, after: 0 }, true],
    [{ sort, after: 3 }, true],
    [{ offset: 1 }, false],
    [{ after: 2 }, false],
    [{ sort, after: 2 }, false],
  ])(
    "users.list has user 2 by its email, unless the page begins after it: %j",
    async (query, has) => {
      await using it = await openWithClock(open);
      await newUser(it.store);
      const user = await newUser(it.store, { email: "Änne@Exämple.com" });
      const email = "A\u0308NNE@xn--exmple-cua.com";
      const page = await listed(it.store.users.list({ ...all, email, ...query }));
      expect(page).toEqual({ rows: has ? [user] : [], total: 1 });
    },
  );

  test("update does not move updated_at back when the clock goes back", async () => {
    await using it = await openWithClock(open);
    const { users, orders } = it.store;
    const user = await newUser(it.store);
    const { id } = await orders.create(orderFields(user.id), null);
    const edit = (order: Order) => ({ ...order, metadata: { v: `${order.version}` } });
    const later = "2026-11-20T18:58:03.120Z";
    for (const [passedMs, updatedAt] of [
      [-60_000, time],
      [120_000, later],
      [-30_000, later],
    ] as const) {
      it.pass(passedMs);
      const changed = [
        await users.update(user.id, rename, null),
        await orders.update(id, edit, null),
      ];
      for (const record of [...changed, await users.get(user.id), await orders.get(id)])
        expect(JSON.parse(record?.json ?? "")).toMatchObject({
          created_at: time,
          updated_at: updatedAt,
        });
    }
  });

  test("close waits for writes in progress", async () => {
    const { store } = await openWithClock(open);
    const { id } = await newUser(store);
    const writes = [1, 2, 3].map(() => store.orders.create(orderFields(id), null));
    await store.checkUsable();
    await store.close();
    const ids = (await Promise.all(writes)).map(({ id }) => id);
    expect(new Set(ids).size).toBe(3);
  });

  test("a reference or an email is given once when many creates of it run at the same time", async () => {
    await using it = await openWithClock(open);
    const { store } = it;
    const { id } = await newUser(store);
    const calls = Array.from({ length: 20 }, (_, at) => [
      newUser(store, { reference: `u${at % 2}` }),
      newUser(store, { email: `${at % 2}@b.cd` }),
      store.orders.create(orderFields(id, { reference: `o${at % 2}` }), null),
    ]);
    const results = await Promise.allSettled(calls.flat());
    for (const [kind, code] of ["reference_taken", "email_taken", "reference_taken"].entries()) {
      const ofKind = results.filter((_, at) => at % 3 === kind);
      const reasons = ofKind.flatMap((result) =>
        result.status === "rejected" ? result.reason.code : [],
      );
      expect(reasons).toEqual(Array(18).fill(code));
    }
    expect(await store.check()).toEqual([]);
  });
}
