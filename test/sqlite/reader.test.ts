import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { createChangeWatch } from "../../src/sqlite/engine/change-watch.ts";
import { expectThrown } from "../support/expect-error.ts";
import { makeWriter } from "./writer.ts";

function makeReader() {
  const made = makeWriter();
  const count = made.db.prepare<{ rows: number }, []>("select count(*) as rows from t");
  return {
    ...made,
    add: () => made.other.run("insert into t (content) values (null)"),
    count: () => made.reader.read("t", () => count.get()?.rows),
    countOnce: (key: string) => made.reader.cached("t", key, () => count.get()?.rows),
  };
}

test("reads of a turn share a snapshot, and what is cached is read again after a commit of another connection", async () => {
  using it = makeReader();
  for (let rows = 1; rows <= 5; rows += 1) {
    it.add();
    expect([it.count(), it.countOnce("a")]).toEqual([rows, rows]);
    it.add();
    await Promise.resolve();
    expect([it.count(), it.countOnce("a"), it.countOnce("b")]).toEqual([rows, rows, rows]);
    expect(it.db.inTransaction).toBe(true);
    await nextTurn();
    expect(it.db.inTransaction).toBe(false);
    expect(it.countOnce("a")).toBe(rows + 1);
    await nextTurn();
    it.db.run("delete from t where rowid > ?", [rows]);
    it.reader.reset();
    expect(it.countOnce("a")).toBe(rows);
    await nextTurn();
  }
});

test("read rethrows the error of its callback, forgets what is cached, and works afterwards", async () => {
  using it = makeReader();
  const reads: string[] = [];
  const readOnce = () => it.reader.cached("t", "a", () => reads.push("a"));
  readOnce();
  const thrown = new Error("the callback fails");
  const fail = () =>
    it.reader.read("t", () => {
      throw thrown;
    });
  expect(fail).toThrow(thrown);
  readOnce();
  expect(reads).toHaveLength(2);
  expect(it.count()).toBe(0);
  await nextTurn();
  it.add();
  expect(it.count()).toBe(1);
});

test("cached does not read again when nothing has changed, and keeps a bounded number of values, but not null", async () => {
  using it = makeReader();
  const reads: number[] = [];
  const read = (key: number) =>
    it.reader.cached("t", String(key), () => (reads.push(key) > 0 && key < 0 ? null : key));
  for (let turn = 0; turn < 3; turn += 1) {
    for (const key of [1, 2, -1]) read(key);
    await nextTurn();
  }
  expect(reads).toEqual([1, 2, -1, -1, -1]);
  for (let key = 3; key <= 1001; key += 1) read(key);
  read(1);
  expect(reads).toHaveLength(1005);
});

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
