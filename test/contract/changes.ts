// The change feed: each change once, with consecutive ids, in the order of commits.
import { expect, test } from "bun:test";
import type { Change, ChangeQuery } from "../../src/domain/change.ts";
import type { Store } from "../../src/domain/store.ts";
import { all, newUser, type Open, openWithClock, userFields } from "./open.ts";

const DAY_MS = 24 * 60 * 60 * 1000;

/** `list` throws on SQLite and rejects on PostgreSQL. */
async function list(store: Store, query: Partial<ChangeQuery> = {}) {
  return store.changes.list({ ...all, ...query });
}

async function changesOf(store: Store, query: Partial<ChangeQuery> = {}): Promise<Change[]> {
  return JSON.parse(`[${(await list(store, query)).records}]`);
}

/** Creates users, whose changes are the only ones. */
async function fill(store: Store, count: number): Promise<void> {
  for (let at = 0; at < count; at += 1) await newUser(store);
}

export function changesContract(open: Open): void {
  test("an import records each of many records once, and changes.deleteExpired deletes more changes than a transaction has", async () => {
    await using it = await openWithClock(open);
    const users = Array.from({ length: 6980 }, () => userFields());
    // Few at the same time, because a create waits for an import for a second at most.
    await Promise.all([it.store.bulk.users.import(users.slice(0, 500)), fill(it.store, 20)]);
    await it.store.bulk.users.import(users.slice(500));
    const seen = new Set<number>();
    for (let after = 0; after < 7000; after += 1000) {
      const changes = await changesOf(it.store, { after });
      expect(changes[0]?.id).toBe(after + 1);
      for (const { record_id } of changes) seen.add(record_id);
    }
    expect(seen.size).toBe(7000);
    it.pass(DAY_MS);
    const filled = fill(it.store, 3);
    while (await it.store.changes.deleteExpired(it.clock.time));
    await filled;
    const { total, first, last } = await list(it.store);
    expect(last).toBe(7003);
    // The newest of the expired ones stays if it was the newest of all.
    expect(first).toBeWithin(7000, 7002);
    expect(total).toBe(last - first + 1);
    expect(await it.store.check()).toEqual([]);
  });

  test("changes.subscribe calls a listener after a change, until it is disposed of", async () => {
    await using it = await openWithClock(open);
    const woken = Promise.withResolvers<void>();
    let calls = 0;
    const count = () => void calls++;
    it.store.changes.subscribe(count)[Symbol.dispose]();
    using _ = it.store.changes.subscribe(woken.resolve);
    await newUser(it.store);
    await woken.promise;
    expect(calls).toBe(0);
  });
}
