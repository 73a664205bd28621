import { expect, test } from "bun:test";
import { LARGE_PAGE_BYTES } from "../../src/domain/page.ts";
import { expectRejection } from "../support/expect-error.ts";
import { listed } from "../support/listed.ts";
import { newUser, type Open, openWithClock, orderFields, userFields } from "./open.ts";

export function listsContract(open: Open): void {
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
