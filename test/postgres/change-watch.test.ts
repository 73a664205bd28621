import { expect, test } from "bun:test";
import type { Database } from "../../src/postgres/server/connection.ts";
import { watchChanges } from "../../src/postgres/tables/change-watch.ts";
import { stopTime } from "../support/fake-time.ts";

test("changes are looked for while there is a subscriber, and soon after a write", async () => {
  using time = stopTime();
  let write = () => {};
  const onWrite = (listener: () => void) => {
    write = listener;
  };
  const db = { onWrite } as unknown as Database;
  // There is one change more each time.
  let last = 0;
  let behind = 0;
  const subscribe = watchChanges(db, async () => {
    last += 1;
    if (behind > 0) write();
    behind = Math.max(0, behind - 1);
    return { feed: "a", first: 1, last, isCurrent: true, isBehind: behind > 0 };
  });
  let woken = 0;
  {
    using _ = subscribe(() => {
      woken += 1;
    });
    await time.pass(250);
    expect([last, woken]).toEqual([2, 2]);
  }
  await time.pass(2_000);
  expect(last).toBe(2);
  write();
  await time.pass(999);
  write();
  expect(last).toBe(2);
  await time.pass(1);
  expect(last).toBe(3);
  // Writes go on meanwhile.
  behind = 4;
  write();
  await time.pass(1_010);
  expect(last).toBe(7);
  await time.pass(1_000);
  expect(last).toBe(8);
  // One that begins to wait need not wait as long as a write before it.
  write();
  using _ = subscribe(() => {});
  write();
  await time.pass(50);
  expect(last).toBe(9);
});
