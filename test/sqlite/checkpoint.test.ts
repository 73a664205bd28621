import type { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { createCheckpointer } from "../../src/sqlite/file/checkpoint.ts";
import { makeWriter } from "./writer.ts";

/** Size of a write that makes a checkpoint due. */
const MANY_BYTES = 20_000_000;

/** @returns the number of pages in the log, and how many of them have been copied to the database */
function logOf(db: Database) {
  return db.query("pragma wal_checkpoint(noop)").get() as { log: number; checkpointed: number };
}

test("write waits for a checkpoint of a long log, which starts again then, and reads do not wait", async () => {
  const end = Promise.withResolvers<void>();
  using made = makeWriter((checkpoints) => ({
    ...checkpoints,
    start: () => checkpoints.start()?.then(() => end.promise) ?? null,
  }));
  await made.write(() => made.insert(1, MANY_BYTES));
  const done: string[] = [];
  const later = made.write(() => made.insert(2)).then(() => done.push("write"));
  for (let turn = 0; turn < 10; turn += 1) await nextTurn();
  expect(made.visible()).toEqual([1]);
  done.push("read");
  end.resolve();
  await later;
  expect(done).toEqual(["read", "write"]);
  expect(logOf(made.db).log).toBeLessThan(10);
});

/** A checkpointer without a writer, which would start checkpoints itself. */
function makeCheckpoints() {
  const made = makeWriter();
  let timeMs = 0;
  const checkpoints = createCheckpointer(made.db, made.files, null, () => timeMs);
  return {
    ...made,
    checkpoints,
    setTime(ms: number) {
      timeMs = ms;
    },
    [Symbol.dispose]() {
      checkpoints.close();
      made[Symbol.dispose]();
    },
  };
}

test("start retries after as many new pages, not after each commit, when a checkpoint was incomplete", async () => {
  using it = makeCheckpoints();
  it.add(1);
  it.other.run("begin");
  it.visible();
  it.add(MANY_BYTES);
  // Not in the commit.
  expect(logOf(it.db).checkpointed).toBe(0);
  await it.checkpoints.start();
  it.add(1);
  expect(it.checkpoints.start()).toBeNull();
  it.add(MANY_BYTES);
  const again = it.checkpoints.start();
  expect(again).not.toBeNull();
  await again;
  it.other.run("commit");
  it.add(MANY_BYTES);
  await it.checkpoints.start();
  const { log, checkpointed } = logOf(it.db);
  expect(checkpointed).toBe(log);
  // The log has restarted, so the pages left in the old one no longer count.
  it.add(1);
  expect(it.checkpoints.start()).toBeNull();
  it.add(MANY_BYTES);
  const anew = it.checkpoints.start();
  expect(anew).not.toBeNull();
  await anew;
});

test("start retries after 10 s without a new page when another process was reading, until all is copied", async () => {
  using it = makeCheckpoints();
  it.add(1);
  it.other.run("begin");
  it.visible();
  it.add(MANY_BYTES);
  await it.checkpoints.start();
  it.other.run("commit");
  it.setTime(9_999);
  expect(it.checkpoints.start()).toBeNull();
  it.setTime(10_000);
  await it.checkpoints.start();
  const { log, checkpointed } = logOf(it.db);
  expect(checkpointed).toBe(log);
  it.setTime(30_000);
  expect(it.checkpoints.start()).toBeNull();
});

test("start enables automatic checkpoints again when its thread has ended", async () => {
  using it = makeCheckpoints();
  it.add(MANY_BYTES);
  await it.checkpoints.start();
  it.checkpoints.close();
  it.add(1);
  expect(it.checkpoints.start()).toBeNull();
  it.add(MANY_BYTES);
  await it.checkpoints.start();
  it.add(MANY_BYTES);
  expect(it.checkpoints.start()).toBeNull();
  const { log, checkpointed } = logOf(it.db);
  expect(checkpointed).toBe(log);
});
