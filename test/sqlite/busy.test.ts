// The group commit while another process writes to the database.
import { expect, test } from "bun:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { expectRejection } from "../expect-error.ts";
import { makeWriter } from "./writer.ts";

test("write waits, and reads succeed, while another process is writing", async () => {
  using it = makeWriter();
  await it.write(() => it.insert(1));
  it.other.run("begin immediate");
  it.other.run("insert into t (n) values (2)");
  let resolved = false;
  const write = it.write(() => it.insert(3));
  const both = Promise.all([write, it.write(() => it.insert(4))]).then(() => {
    resolved = true;
  });
  // The writer retries in each turn of the event loop, and reads succeed in between.
  for (let turn = 0; turn < 5; turn += 1) {
    await nextTurn();
    expect(it.db.prepare("select n from t").all()).toEqual([{ n: 1 }]);
    expect(resolved).toBe(false);
  }
  it.other.run("commit");
  await both;
  expect(it.visible()).toEqual([1, 2, 3, 4]);
});

test("write rejects with unavailable when another process writes for 5 seconds", async () => {
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
  it.other.run("rollback");
  // The timeout starts again with each batch.
  it.other.run("begin immediate");
  const later = it.write(() => it.insert(3));
  await nextAttempt();
  it.other.run("commit");
  await later;
  expect(it.visible()).toEqual([3]);
});
