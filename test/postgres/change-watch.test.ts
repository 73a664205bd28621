import { expect, test } from "bun:test";
import type { Database } from "../../src/postgres/server/connection.ts";
import { watchChanges } from "../../src/postgres/tables/change-watch.ts";

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
  const { watch, subscribe, write } = makeWatch();
  const woken = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  {
    using _ = subscribe(() => woken[watch.passes - 1]?.resolve());
    await woken[0]?.promise;
    await woken[1]?.promise;
  }
  await Bun.sleep(150);
  const { passes } = watch;
  await Bun.sleep(150);
  expect(watch.passes).toBe(passes);
  write();
  while (watch.passes === passes) await Bun.sleep(10);
});

test("no changes are looked for when the database is closed, although somebody waits", async () => {
  const { watch, subscribe, write, close } = makeWatch();
  using _ = subscribe(() => {});
  while (watch.passes === 0) await Bun.sleep(10);
  close();
  const { passes } = watch;
  write();
  await Bun.sleep(250);
  expect(watch.passes).toBe(passes);
});
