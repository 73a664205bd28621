import { expect, test } from "bun:test";
import type { Database } from "../../src/postgres/server/connection.ts";
import { watchChanges } from "../../src/postgres/tables/change-watch.ts";
import { stopTime } from "../support/fake-time.ts";

test("changes are looked for while somebody waits, and soon after a write, until the database is closed", async () => {
  using time = stopTime();
  const closing = new AbortController();
  let write = () => {};
  const onWrite = (listener: () => void) => {
    write = listener;
  };
  const db = { onWrite, closing: closing.signal } as unknown as Database;
  // There is one change more each time.
  let last = 0;
  const subscribe = watchChanges(db, async () => {
    last += 1;
    return { feed: "a", first: 1, last, isCurrent: true, isBehind: false };
  });
  let woken = 0;
  {
    using _ = subscribe(() => {
      woken += 1;
    });
    await time.pass(250);
    expect([last, woken]).toEqual([2, 2]);
  }
  // The one that is due.
  await time.pass(2_000);
  expect(last).toBe(3);
  write();
  await time.pass(1_000);
  expect(last).toBe(4);
  using _ = subscribe(() => {});
  await time.pass(100);
  closing.abort();
  write();
  await time.pass(2_000);
  expect([last, woken]).toEqual([5, 2]);
});
