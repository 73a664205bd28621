import { expect, test } from "bun:test";
import { newUser, type Open, openWithClock, orderFields } from "./open.ts";

export function recordsContract(open: Open): void {
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
