// Work that waits leaves connections to other work.
import { describe, expect, test } from "bun:test";
import type { Maybe } from "../../src/maybe.ts";
import { newUser, userFields } from "../contract/open.ts";
import { cluster, makeHarness, patient, waitingBackends } from "./postgres-harness.ts";

describe.if(cluster !== null)("pages that wait for a lock", () => {
  test("delay neither reads nor creates of users", async () => {
    await using world = await makeHarness();
    const store = await world.open({ databaseUrl: world.url + patient });
    const user = await newUser(store);
    await using held = await world.hold("lock table orders in access exclusive mode");
    let settled = 0;
    const pages = Array.from({ length: 60 }, async (_, offset) => {
      await store.orders.list({ limit: 10, offset });
      settled += 1;
    });
    await world.untilWaiting(2);
    expect((await store.users.get(user.id))?.id).toBe(user.id);
    await store.users.create(userFields(), null);
    expect(settled).toBe(0);
    await held.commit();
    await Promise.all(pages);
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
