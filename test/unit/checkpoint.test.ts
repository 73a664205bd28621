import type { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { createCheckpointer } from "../../src/sqlite/checkpoint.ts";
import { makeWriter } from "./writer.ts";

/** Pages of content that one write brings: more than a checkpoint waits for. */
const MANY_BYTES = 20_000_000;

/** Pages in the log, and those of them that are in the database, too. */
function logOf(db: Database) {
  return db.query("pragma wal_checkpoint(noop)").get() as { log: number; checkpointed: number };
}

test("`createCheckpointer` brings the log into the database when it is long", async () => {
  using made = makeWriter();
  await made.writer.write(() =>
    made.db.run("insert into t (n, content) values (1, zeroblob(?))", [MANY_BYTES]),
  );
  await made.writer.idle();
  const { log, checkpointed } = logOf(made.db);
  expect(log).toBeGreaterThan(4000);
  expect(checkpointed).toBe(log);
  await made.writer.write(() => made.insert(2));
  expect(logOf(made.db).log).toBeLessThan(10);
  expect(made.visible()).toEqual([1, 2]);
});

test("`createCheckpointer` leaves the log alone when it is short", async () => {
  using made = makeWriter();
  await made.writer.write(() => made.insert(1));
  await made.writer.idle();
  expect(logOf(made.db).checkpointed).toBe(0);
  await made.writer.write(() =>
    made.db.run("insert into t (n, content) values (2, zeroblob(?))", [MANY_BYTES / 2]),
  );
  await made.writer.idle();
  expect(logOf(made.db).checkpointed).toBe(0);
});

test("`write` waits, and reads do not, when there is a checkpoint", async () => {
  using made = makeWriter();
  await made.writer.write(() =>
    made.db.run("insert into t (n, content) values (1, zeroblob(?))", [MANY_BYTES]),
  );
  const done: string[] = [];
  const later = made.writer.write(() => made.insert(2)).then(() => done.push("write"));
  // Many turns of the event loop, but no time for a thread to start.
  for (let turn = 0; turn < 3; turn += 1) await new Promise((next) => setImmediate(next));
  expect(made.visible()).toEqual([1]);
  done.push("read");
  await later;
  expect(done).toEqual(["read", "write"]);
});

test("`write` goes on when another process reads an older state", async () => {
  using made = makeWriter();
  await made.writer.write(() => made.insert(1));
  made.other.run("begin");
  made.visible();
  for (let n = 2; n < 6; n += 1) {
    await made.writer.write(() =>
      made.db.run("insert into t (n, content) values (?, zeroblob(?))", [n, MANY_BYTES]),
    );
  }
  await made.writer.idle();
  const { log, checkpointed } = logOf(made.db);
  expect(checkpointed).toBeLessThan(log);
  made.other.run("commit");
  expect(made.visible()).toEqual([1, 2, 3, 4, 5]);
});

/** The same without a writer, which would ask for a checkpoint by itself. */
function makeCheckpoints() {
  const made = makeWriter();
  const checkpoints = createCheckpointer(made.db);
  let last = 0;
  return {
    ...made,
    checkpoints,
    /** A row of this many bytes. */
    add(bytes: number) {
      last += 1;
      made.db.run("insert into t (n, content) values (?, zeroblob(?))", [last, bytes]);
    },
    [Symbol.dispose]() {
      checkpoints.close();
      made[Symbol.dispose]();
    },
  };
}

test("`createCheckpointer` takes its work off the commit when the log is long", () => {
  using it = makeCheckpoints();
  it.add(MANY_BYTES);
  expect(logOf(it.db).checkpointed).toBe(0);
});

test("`start` tries again after as many pages, not with each commit, when some were left", async () => {
  using it = makeCheckpoints();
  it.add(1);
  it.other.run("begin");
  it.visible();
  it.add(MANY_BYTES);
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
  // The log begins anew, and what was left of the old one counts no more.
  it.add(1);
  expect(it.checkpoints.start()).toBeNull();
  it.add(MANY_BYTES);
  const anew = it.checkpoints.start();
  expect(anew).not.toBeNull();
  await anew;
});

test("`start` leaves the log to SQLite when its thread has ended", async () => {
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

test("`start` does nothing when the log cannot be measured", () => {
  using it = makeCheckpoints();
  /** The database, but that it fails to say how long its log is. */
  const prepare = (sql: string) =>
    sql.includes("noop")
      ? { get: () => it.other.prepare("select 1 from nowhere") }
      : it.db.prepare(sql);
  const run = (sql: string) => it.db.run(sql);
  const db = { prepare, run, filename: it.db.filename } as unknown as Database;
  expect(createCheckpointer(db).start()).toBeNull();
});
