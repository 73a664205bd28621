import { expect, test } from "bun:test";
import { createRowQueue } from "../../src/postgres/engine/row-queue.ts";
import { expectRejection } from "../support/expect-error.ts";

/** Runs writes that the test ends, and records which have begun. */
function makeQueue(maxRunning: number, queueTimeoutMs = 60_000) {
  const runForRow = createRowQueue(maxRunning, queueTimeoutMs);
  const begun: string[] = [];
  const ends: (() => void)[] = [];
  return {
    begun,
    runForRow,
    run: (row: string) =>
      runForRow(row, () => {
        begun.push(row);
        return new Promise<string>((resolve) => ends.push(() => resolve("done")));
      }),
    /** Ends the oldest running write, and waits until the next one has begun. */
    async end() {
      ends.shift()?.();
      await Bun.sleep(0);
    },
  };
}

test("writes of one row run in their order, one at a time, and others as long as there are places", async () => {
  const { begun, run, end } = makeQueue(2);
  const results = [..."aaabc"].map(run);
  const seen: string[] = [];
  for (let at = 0; at < results.length; at += 1) {
    seen.push(begun.join(""));
    await end();
  }
  expect(seen).toEqual(["ab", "aba", "abac", "abaca", "abaca"]);
  expect(await Promise.all(results)).toEqual(Array.from({ length: 5 }, () => "done"));
});

test("a write is rejected and never begins when it waits for too long, and the next begins", async () => {
  const { begun, run, end } = makeQueue(1, 20);
  const first = run("a");
  await expectRejection(run("b"), "unavailable", "the database is busy");
  const next = run("c");
  await end();
  expect(await first).toBe("done");
  await end();
  expect(await next).toBe("done");
  expect(begun).toEqual(["a", "c"]);
});

test("the next write of a row begins when one fails", async () => {
  const { runForRow } = makeQueue(1);
  const failed = runForRow("a", () => Promise.reject(new Error("failed")));
  const next = runForRow("a", async () => "done");
  await expect(failed).rejects.toThrow("failed");
  expect(await next).toBe("done");
});
