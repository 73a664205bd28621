import { expect, spyOn, test } from "bun:test";
import { renameSync } from "node:fs";
import { setImmediate as nextTurn } from "node:timers/promises";
import { AppError } from "../../src/base/error.ts";
import { damagePage, rootPageOf } from "../support/damage.ts";
import { expectRejection } from "../support/expect-error.ts";
import { makeWriter } from "./writer.ts";

function rejectedIn(results: readonly PromiseSettledResult<unknown>[]): number[] {
  return results.flatMap(({ status }, at) => (status === "rejected" ? [at] : []));
}

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

test("write alone is rolled back when its callback throws, or ends the transaction", async () => {
  using it = makeWriter();
  const thrown = new Error("the callback fails");
  const works: (() => object | undefined)[] = [
    () => it.insert(1),
    () => {
      it.insert(2);
      throw thrown;
    },
    () => it.insert(3),
    // Constraint errors are passed on unchanged, too.
    () => [it.insert(4), it.insert(1000)],
    () => it.visible(),
    // SQLite does this itself after some disk errors.
    () => {
      it.db.run("rollback");
      throw thrown;
    },
    () => it.insert(5),
  ];
  const results = await Promise.allSettled(works.map((work) => it.write(work)));
  expect(rejectedIn(results)).toEqual([1, 3, 5]);
  expect(results[1]).toEqual({ status: "rejected", reason: thrown });
  expect(results[3]).toMatchObject({ reason: { code: "SQLITE_CONSTRAINT_CHECK" } });
  expect(it.visible()).toEqual([1, 3, 5]);
  expect(it.commits()).toBe(1);
});

test("write rejects the whole batch with unavailable when the commit fails", async () => {
  using it = makeWriter();
  const writes = [
    it.write(() => it.insert(1)),
    it.write(() => it.db.run("insert into late values (99)")),
    it.write(() => it.insert(2)),
  ];
  for (const { reason } of (await Promise.allSettled(writes)) as PromiseRejectedResult[]) {
    expect(reason).toMatchObject({
      name: "AppError",
      code: "unavailable",
      cause: { code: "SQLITE_CONSTRAINT_FOREIGNKEY" },
    });
  }
  expect(it.visible()).toEqual([]);
  expect(it.db.inTransaction).toBe(false);
  await it.write(() => it.insert(3));
  expect(it.visible()).toEqual([3]);
});

test("write either succeeds or rejects with unavailable when the disk is full", async () => {
  using it = makeWriter();
  it.db.run("pragma max_page_count = 20");
  const sizes = [10, 10, 1_000_000, 10, 1_000_000, 10];
  const writes = sizes.map((size, n) => it.write(() => it.insert(n, size)));
  const results = await Promise.allSettled(writes);
  const stored = results.flatMap(({ status }, n) => (status === "fulfilled" ? [n] : []));
  expect(it.visible()).toEqual(stored);
  for (const n of [2, 4]) {
    expect(results[n]).toMatchObject({ reason: { code: "unavailable" } });
  }
  const failed = ["begin", "failed on the disk"];
  expect(it.attempts).toEqual([...failed, ...failed, "begin", "committed"]);
  await it.write(() => it.insert(100));
  expect(it.visible()).toEqual([...stored, 100]);
});

test("write shares a transaction with others when it throws an AppError", async () => {
  using it = makeWriter();
  let runs = 0;
  const reason = new AppError("email_taken", "email is already taken");
  const first = it.write(() => (runs += it.insert(1).changes));
  const failing = it.write(() => {
    throw reason;
  });
  await Promise.all([first, it.write(() => it.insert(2)), expect(failing).rejects.toBe(reason)]);
  expect([runs, it.commits(), it.visible()]).toEqual([1, 1, [1, 2]]);
});

test("idle resolves when every earlier write has settled", async () => {
  using it = makeWriter();
  await it.idle();
  const resolved: string[] = [];
  const note = (what: string) => () => resolved.push(what);
  const first = it.write(() => it.insert(1)).then(note("first"));
  const failed = it.write(() => it.insert(1000)).catch(note("failed"));
  await it.idle();
  expect(it.visible()).toEqual([1]);
  await Promise.all([first, failed]);
  expect(resolved).toEqual(["failed", "first"]);
});

/** A table whose only page is damaged: SQLite then rejects further writes of the transaction. */
function addDamagedTable(it: ReturnType<typeof makeWriter>): void {
  it.db.run("create table damaged (n integer)");
  it.db.run("insert into damaged values (1)");
  it.db.run("pragma wal_checkpoint(truncate)");
  const path = it.db.filename;
  damagePage(path, rootPageOf(path, "damaged"));
  // Drops the cached page.
  it.db.run("pragma shrink_memory");
  it.db.run("pragma cache_size = 0");
}

test("write rejects writes that meet a damaged page or fail, each with its own error, and commits the others", async () => {
  using it = makeWriter();
  addDamagedTable(it);
  const damaged = () => it.db.run("update damaged set n = n + 1");
  const thrown = new Error("the callback fails");
  const failing = () => {
    it.insert(4);
    throw thrown;
  };
  const works = [failing, () => it.insert(1), damaged, () => it.insert(2), damaged];
  const writes = [...works, () => it.insert(3)].map((work) => it.write(work));
  const results = await Promise.allSettled(writes);
  expect(rejectedIn(results)).toEqual([0, 2, 4]);
  expect(results[0]).toMatchObject({ reason: thrown });
  for (const at of [2, 4]) expect(results[at]).toMatchObject({ reason: { code: "damaged" } });
  expect(it.visible()).toEqual([1, 2, 3]);
  // One for the writes that succeed: the damaged ones commit nothing.
  expect(it.commits()).toBe(1);
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
  let isIdle = false;
  const idle = it.idle().then(() => {
    isIdle = true;
  });
  for (let attempt = 0; attempt < 5; attempt += 1) {
    await nextAttempt();
    expect(it.db.prepare("select n from t").all()).toEqual([]);
    expect(isIdle).toBe(false);
  }
  it.other.run("commit");
  await Promise.all([later, idle]);
  expect(it.visible()).toEqual([3, 4]);
  // A lock is no failure of the disk.
  expect(new Set(it.attempts)).toEqual(new Set(["begin", "failed", "committed"]));
});
