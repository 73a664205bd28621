import { expect, spyOn, test } from "bun:test";
import { renameSync } from "node:fs";
import { setImmediate as nextTurn } from "node:timers/promises";
import { AppError } from "../../src/base/error.ts";
import { damagePage, rootPageOf } from "../support/damage.ts";
import { expectRejection } from "../support/expect-error.ts";
import { makeRandom } from "../support/random.ts";
import { makeWriter } from "./writer.ts";

test("write shares one commit with the next turn when several are waiting, and does not wait when alone", async () => {
  using it = makeWriter();
  const writes = [1, 2].map((n) => it.write(() => it.insert(n)));
  for (const n of [3, 4]) {
    await nextTurn();
    writes.push(it.write(() => it.insert(n)));
  }
  await Promise.all(writes.slice(0, 3));
  expect(it.visible()).toEqual([1, 2, 3]);
  expect(it.commits()).toBe(1);
  await Promise.all(writes);
  expect(it.commits()).toBe(2);
  const lone = it.write(() => it.insert(5));
  await nextTurn();
  await it.write(() => it.insert(6));
  await lone;
  expect(it.commits()).toBe(4);
});

test("write commits without waiting when a batch is full, which has 256 writes", async () => {
  using it = makeWriter();
  const writes = Array.from({ length: 600 }, (_, n) => it.write(() => it.insert(n)));
  expect(it.visible()).toEqual([]);
  await nextTurn();
  expect(it.visible()).toHaveLength(256);
  await Promise.all(writes);
  expect(it.commits()).toBe(3);
});

test("writes share a commit for 10 ms, and reads run before the next one", async () => {
  using it = makeWriter();
  const visible: number[] = [];
  const slowInsert = (n: number) => {
    it.pass(4);
    it.insert(n);
  };
  const writes = Array.from({ length: 7 }, (_, n) => it.write(() => slowInsert(n)));
  while (it.visible().length < 7) {
    await nextTurn();
    visible.push(it.visible().length);
  }
  await Promise.all(writes);
  expect(it.commits()).toBe(3);
  expect(new Set(visible)).toEqual(new Set([0, 3, 6, 7]));
});

test("writes share a commit when a transaction takes longer to begin than a batch may take", async () => {
  using it = makeWriter();
  // Files are slow to examine.
  spyOn(it.files, "requireInPlace").mockImplementation(() => it.pass(20));
  await Promise.all([1, 2, 3].map((n) => it.write(() => it.insert(n))));
  expect(it.commits()).toBe(1);
  expect(it.visible()).toEqual([1, 2, 3]);
});

test("a write waits for one of each author when hundreds of another author wait", async () => {
  using it = makeWriter();
  const ran: string[] = [];
  const add = (author: string | null, name = `${author}`) =>
    it.write(() => {
      it.pass(4);
      ran.push(name);
    }, author);
  const writes = Array.from({ length: 300 }, (_, n) => add("a", `a${n}`));
  writes.push(add("b", "b0"), add("b", "b1"), add(null));
  while (ran.length < 12) await nextTurn();
  // One batch has just ended, and another begins.
  writes.push(add("c"));
  await Promise.all(writes);
  expect(ran.slice(0, 6)).toEqual(["a0", "b0", "null", "a1", "b1", "a2"]);
  expect(ran.indexOf("c")).toBe(13);
  const ofA = ran.filter((name) => name.startsWith("a"));
  expect(ofA).toEqual(Array.from({ length: 300 }, (_, n) => `a${n}`));
});

type Made = ReturnType<typeof makeWriter>;

/** A table whose only page is damaged: SQLite then rejects further writes of the transaction. */
function addDamagedTable(it: Made): void {
  it.db.run("create table damaged (n integer)");
  it.db.run("insert into damaged values (1)");
  it.db.run("pragma wal_checkpoint(truncate)");
  const path = it.db.filename;
  damagePage(path, rootPageOf(path, "damaged"));
  // Drops the cached page.
  it.db.run("pragma shrink_memory");
  it.db.run("pragma cache_size = 0");
}

const thrown = new Error("the callback fails");
const notCommitted = { code: "unavailable", cause: { code: "SQLITE_CONSTRAINT_FOREIGNKEY" } };
const taken = new AppError("email_taken", "email is already taken");

function fail(error: Error): never {
  throw error;
}

/** What a write may do, and the error with which it alone is rejected; `null` if it succeeds. */
const works: readonly (readonly [(it: Made, n: number) => object, object | null])[] = [
  [(it, n) => it.insert(n), null],
  [(it, n) => it.insert(n, 10), null],
  [(it) => it.visible(), null],
  [() => fail(taken), taken],
  [(it, n) => it.insert(n) && fail(thrown), thrown],
  // Constraint errors are passed on unchanged.
  [(it, n) => [it.insert(n), it.insert(1000)], { code: "SQLITE_CONSTRAINT_CHECK" }],
  [(it) => it.db.run("update damaged set n = n + 1"), { code: "damaged" }],
  [(it, n) => it.insert(n, 1_000_000), { code: "unavailable" }],
  // SQLite does this itself after some disk errors.
  [(it) => it.db.run("rollback") && fail(thrown), thrown],
  // The commit fails, and so does every other write of the batch.
  [(it) => it.db.run("insert into late values (99)"), notCommitted],
];
const FULL = 7;

test("a write that fails is rejected alone with its own error, and the others share one commit", async () => {
  using it = makeWriter();
  addDamagedTable(it);
  it.db.run("pragma max_page_count = 30");
  const random = makeRandom(1);
  await it.write(() => it.insert(0));
  const stored = [0];
  let n = 0;
  for (let round = 0; round < 100; round += 1) {
    const batch = Array.from({ length: 1 + random(7) }, () => {
      n += 1;
      return { n, at: random(works.length - Number(random(4) > 0)) };
    });
    const isLate = batch.some(({ at }) => at === works.length - 1);
    const attempts: string[] = [];
    const commits = it.commits();
    it.attempts.length = 0;
    const writes = batch.map((each) => it.write(() => works[each.at]?.[0](it, each.n) ?? {}));
    for (const [index, result] of (await Promise.allSettled(writes)).entries()) {
      const { at, n } = batch[index] ?? { at: 0, n: 0 };
      const [, own = null] = works[at] ?? [];
      const isAlone = own !== null && own !== taken && own !== notCommitted;
      const error = isLate && !isAlone ? notCommitted : own;
      const expected = error === null ? { status: "fulfilled" } : { reason: error };
      expect(result, JSON.stringify([batch, index])).toMatchObject(expected);
      if (error === null && at < 2) stored.push(n);
      if (isAlone) attempts.push("begin", at === FULL ? "failed on the disk" : "failed");
    }
    // Those that are left share the last one.
    if (attempts.length < 2 * batch.length) attempts.push("begin", isLate ? "failed" : "committed");
    expect([it.visible(), it.db.inTransaction, it.attempts]).toEqual([stored, false, attempts]);
    const isCommitted = batch.some(({ at }) => at < 2) && !isLate;
    expect(it.commits() - commits).toBe(Number(isCommitted));
  }
});

test("write rejects the whole batch with unavailable when the database is moved before the commit", async () => {
  using it = makeWriter();
  const { filename } = it.db;
  const writes = [
    it.write(() => it.insert(1)),
    it.write(() => renameSync(filename, `${filename}.moved`)),
  ];
  for (const write of writes) await expectRejection(write, "unavailable");
});

test("write waits, and reads succeed, while another process is writing, for 5 seconds at most", async () => {
  using it = makeWriter();
  /** Waits until the writer starts an attempt, when it reads the clock. */
  async function nextAttempt(): Promise<void> {
    const reads = it.clockReads();
    while (it.clockReads() === reads) await nextTurn();
  }
  it.other.run("begin immediate");
  const writes = [1, 2].map((n) => it.write(() => it.insert(n)));
  await nextAttempt();
  it.pass(5000);
  for (const write of writes) await expectRejection(write, "unavailable");
  it.other.run("insert into t (n) values (3)");
  // The timeout starts again with each batch.
  const later = it.write(() => it.insert(4));
  const idle = it.idle();
  for (let attempt = 0; attempt < 5; attempt += 1) {
    await nextAttempt();
    expect(it.db.prepare("select n from t").all()).toEqual([]);
    expect(Bun.peek.status(idle)).toBe("pending");
  }
  it.other.run("commit");
  await Promise.all([later, idle]);
  expect(it.visible()).toEqual([3, 4]);
  // A lock is no failure of the disk.
  expect(new Set(it.attempts)).toEqual(new Set(["begin", "failed", "committed"]));
});
