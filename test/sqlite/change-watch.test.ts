import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { createChangeWatch } from "../../src/sqlite/engine/change-watch.ts";
import { expectThrown } from "../support/expect-error.ts";

test("a change is shown when the archive has it, and the archive is asked again after an error", async () => {
  using db = new Database(":memory:");
  db.run("create table changes (id integer primary key)");
  const add = () => db.run("insert into changes default values");
  const asked: PromiseWithResolvers<void>[] = [];
  using watch = createChangeWatch(db, () => {
    const answer = Promise.withResolvers<void>();
    asked.push(answer);
    return answer.promise;
  });
  const expectUnknown = () =>
    expectThrown(() => watch.shownOf(0), "unavailable", "the archive does not respond");
  expectUnknown();
  expectUnknown();
  expect(asked.length).toBe(1);
  asked[0]?.reject(new Error("away"));
  await Bun.sleep(0);
  let calls = 0;
  using _subscription = watch.subscribe(() => {
    calls += 1;
  });
  expectUnknown();
  expect(asked.length).toBe(2);
  asked[1]?.resolve();
  await Bun.sleep(0);
  expect([watch.shownOf(0), calls]).toEqual([0, 1]);
  for (const last of [1, 2]) {
    add();
    expect(watch.shownOf(last)).toBe(0);
  }
  expect([asked.length, calls]).toEqual([4, 1]);
  for (const last of [1, 2]) {
    asked[1 + last]?.resolve();
    await Bun.sleep(0);
    expect([watch.shownOf(2), calls]).toEqual([last, 1 + last]);
  }
  expect(asked.length).toBe(4);
});
