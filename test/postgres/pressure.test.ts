// Lists leave connections to other requests, and to the lists of other clients. No client has all places of reads.
import { describe, expect, test } from "bun:test";
import type { Maybe } from "../../src/maybe.ts";
import { buildInSlices } from "../../src/postgres/page-slices.ts";
import type { Store } from "../../src/store.ts";
import { newUser, orderFields, userFields } from "../contract/open.ts";
import { expectRejection } from "../expect-error.ts";
import { cluster, makeHarness, patient, waitingBackends } from "./postgres-harness.ts";

/** Each has a statement of its own, because it skips many rows. */
const deepPage = { limit: 10, offset: 5_000 };
const PAGES = 60;

/** Requests many pages of orders. @returns how many have been read or have failed */
function listMany(store: Store, client: string) {
  const settled = { pages: 0 };
  const count = () => {
    settled.pages += 1;
  };
  const pages = Array.from({ length: PAGES }, () => store.orders.list(deepPage, client));
  return { settled, all: Promise.all(pages.map((page) => Promise.resolve(page).finally(count))) };
}

describe.if(cluster !== null)("pages that wait for a lock", () => {
  test("delay neither reads nor creates of users", async () => {
    await using world = await makeHarness();
    const store = await world.open({ databaseUrl: world.url + patient });
    const user = await newUser(store);
    await using held = await world.hold("lock table orders in access exclusive mode");
    const { settled, all } = listMany(store, "a");
    expect((await store.users.get(user.id))?.id).toBe(user.id);
    await store.users.create(userFields(), null);
    expect(settled.pages).toBe(0);
    await held.commit();
    await all;
  });

  test("of one client let a page of another pass", async () => {
    await using world = await makeHarness();
    // One of the two is for lists, so pages are read one after the other.
    const store = await world.open({ databaseUrl: world.urlWith("max=2") });
    await store.orders.place(orderFields((await newUser(store)).id), null);
    await using held = await world.hold("lock table orders in access exclusive mode");
    const { settled, all } = listMany(store, "a");
    const other = Promise.resolve(store.orders.list(deepPage, "b")).then(() => settled.pages);
    await held.commit();
    expect(await other).toBeLessThanOrEqual(2);
    await all;
  });
});

describe.if(cluster !== null)("small pages that wait", () => {
  test("of one client leave half of the places to others", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    await using held = await world.hold("lock table users in access exclusive mode");
    const list = (client: string) => store.users.list({ limit: 1, offset: 0 }, client);
    const pages = Array.from({ length: 2048 }, () => list("a"));
    await expectRejection(Promise.resolve(list("a")), "unavailable", "too many lists are waiting");
    pages.push(list("b"));
    await held.commit();
    await Promise.all(pages);
    expect((await list("a")).total).toBe(0);
  });
});

describe.if(cluster !== null)("reads of single records that wait", () => {
  test("of one client leave half of the places to others, and those of lists to the same client", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    const { id } = await newUser(store);
    const held = await world.hold("lock table users in access exclusive mode");
    const list = (client: string, email?: string) =>
      store.users.list({ limit: 1, offset: 0, ...(email && { email }) }, client);
    const reads = Array.from({ length: 2047 }, () => store.users.get(id, "a"));
    const pages = [list("a", "a@b.c")];
    for (const late of [store.users.get(id, "a"), store.orders.get(1, "a"), list("a", "a@b.c")]) {
      await expectRejection(Promise.resolve(late), "unavailable", "too many reads are waiting");
    }
    reads.push(store.users.get(id, "b"));
    pages.push(list("a"), list("b", "a@b.c"));
    await held.commit();
    expect(new Set((await Promise.all(reads)).map((record) => record?.id))).toEqual(new Set([id]));
    expect((await Promise.all(pages)).map(({ total }) => total)).toEqual([0, 1, 0]);
    expect((await store.users.get(id, "a"))?.id).toBe(id);
  });
});

describe.if(cluster !== null)("tokens that are unknown", () => {
  test("wait for two statements, beside which records are read", async () => {
    await using world = await makeHarness();
    const store = await world.open({ databaseUrl: world.url + patient });
    const { id } = await newUser(store);
    const held = await world.hold("lock table tokens in access exclusive mode");
    const finds: Maybe<unknown>[] = [];
    // Each in a later turn, so that another statement could begin.
    for (let at = 0; at < 6; at += 1) {
      finds.push(store.tokens.find(`unknown ${at}`));
      await world.untilWaiting(Math.min(2, at + 1));
      await Bun.sleep(6);
    }
    expect(await world.run(waitingBackends)).toHaveLength(2);
    expect((await store.users.get(id))?.id).toBe(id);
    await held.commit();
    expect(await Promise.all(finds)).toEqual(finds.map(() => null));
  });
});

describe.if(cluster !== null)("a large page", () => {
  test("does not take the turns of small pages when other clients wait", async () => {
    await using world = await makeHarness();
    // Two of them are for lists.
    const db = world.connect(world.urlWith("max=4"));
    const { promise: read, resolve: finish } = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<void>();
    const large = buildInSlices(db, {
      query: { limit: 1, offset: 0 },
      async *readSlices() {
        begun.resolve();
        await read;
        yield { total: 0, rows: [], isLast: true };
      },
    });
    await begun.promise;
    const order: string[] = [];
    const list = (name: string, client?: string) =>
      db.run("list", async () => void order.push(name), { client });
    const first = db.run("list", () => Bun.sleep(0), { client: "b" });
    await Promise.all([first, list("small"), list("c", "c"), list("d", "d")]);
    expect(order).toEqual(["small", "c", "d"]);
    finish();
    await large;
  });
});

describe.if(cluster !== null)("the last use of a token", () => {
  test("is neither a pending write nor measured", async () => {
    await using world = await makeHarness();
    const store = await world.open();
    const held = await world.hold("lock table tokens, users in exclusive mode");
    const touched = store.tokens.touch("hash", "2026-11-20T18:57:00.000Z");
    const pending = async () => (await store.statistics()).pendingWrites;
    expect(await pending()).toBe(0);
    const created = store.users.create(userFields(), null);
    expect(await pending()).toBe(1);
    await held.commit();
    await created;
    await touched;
    expect(world.commits).toEqual([1]);
  });
});
