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
  await time.pass(2_000);
  expect(last).toBe(2);
  write();
  await time.pass(999);
  expect(last).toBe(2);
  await time.pass(1);
  expect(last).toBe(3);
});
