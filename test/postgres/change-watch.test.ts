import { expect, test } from "bun:test";
import type { Database } from "../../src/postgres/server/connection.ts";
import { watchChanges } from "../../src/postgres/tables/change-watch.ts";
import { stopTime } from "../support/fake-time.ts";

/** Counts how often changes are numbered. There is one more each time. */
function makeWatch() {
  const closing = new AbortController();
  const listeners: (() => void)[] = [];
  const db = {
    onWrite: (listener: () => void) => void listeners.push(listener),
    closing: closing.signal,
  } as unknown as Database;
  const watch = { passes: 0 };
  const subscribe = watchChanges(db, async () => {
    watch.passes += 1;
    return { feed: "a", first: 1, last: watch.passes, isCurrent: true, isBehind: false };
  });
  return {
    watch,
    subscribe,
    write() {
      for (const listener of listeners) listener();
    },
    close: () => closing.abort(),
  };
}

test("changes are looked for while somebody waits, and soon after a write", async () => {
  using time = stopTime();
  const { watch, subscribe, write } = makeWatch();
  let woken = 0;
  {
    using _ = subscribe(() => {
      woken += 1;
    });
    await time.pass(250);
    expect([watch.passes, woken]).toEqual([2, 2]);
  }
  // The one that is due.
  await time.pass(2_000);
  expect(watch.passes).toBe(3);
  write();
  await time.pass(1_000);
  expect(watch.passes).toBe(4);
});

test("no changes are looked for when the database is closed, although somebody waits", async () => {
  using time = stopTime();
  const { watch, subscribe, write, close } = makeWatch();
  using _ = subscribe(() => {});
  await time.pass(100);
  close();
  write();
  await time.pass(2_000);
  expect(watch.passes).toBe(1);
});
