// Large pages of SQLite. The contract of all lists is in test/contract/lists.ts.
import { expect, test } from "bun:test";
import { setImmediate as endTurn } from "node:timers/promises";
import type { Page } from "../../src/page.ts";
import type { Store } from "../../src/store.ts";
import { newUser, orderFields, userFields } from "../contract/open.ts";
import { makeDirectory } from "../directory.ts";
import { expectRejection } from "../expect-error.ts";
import { listed } from "../listed.ts";
import { openDatabase } from "./open-database.ts";

const RECORDS = 100;
/** 25 kB each. */
const metadata = Object.fromEntries(
  Array.from({ length: 50 }, (_, at) => [`field-${at}`, "x".repeat(500)]),
);
const all = { limit: RECORDS, offset: 0 };

type ReadList = (store: Store, client: string) => Promise<Page>;

const lists: Readonly<Record<string, ReadList>> = {
  "of users": async ({ users }, client) => users.list(all, client),
  "of orders": async ({ orders }, client) => orders.list(all, client),
  "of orders in a status": async ({ orders }, client) =>
    orders.list({ ...all, status: "pending" }, client),
  "of orders of a user": async ({ orders }, client) => orders.list({ ...all, user_id: 1 }, client),
};

test("a large page reserves the memory of all its records before it reads them", async () => {
  using directory = makeDirectory();
  const maxUnsentBytes = 2 ** 23;
  await using store = await openDatabase(directory.at("a.db"), { maxUnsentBytes });
  const { id } = await newUser(store);
  for (let at = 0; at < RECORDS; at += 1) {
    await store.users.create(userFields({ name: "\u0001".repeat(200), metadata }), null);
    await store.orders.place(orderFields(id, { metadata }), null);
  }
  const unsentBytes = async () => (await store.statistics()).unsentBytes;
  for (const [what, readList] of Object.entries(lists)) {
    const reading = readList(store, "a");
    let reserved = 0;
    while (reserved === 0) {
      await endTurn();
      reserved = await unsentBytes();
    }
    const page = await reading;
    const taken = await unsentBytes();
    expect(taken, what).toBeWithin(2 ** 21, 2 ** 22);
    expect(reserved, what).toBeWithin(taken, taken + 2 ** 18);
    // Half of the memory is for one client.
    await expectRejection(readList(store, "a"), "unavailable");
    const other = readList(store, "b");
    expect((await listed(other)).rows, what).toHaveLength(RECORDS);
    expect((await listed(page)).rows, what).toHaveLength(RECORDS);
    expect(await unsentBytes(), what).toBe(0);
  }
});
