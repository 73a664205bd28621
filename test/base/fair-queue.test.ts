import { expect, test } from "bun:test";
import { createFairQueue, type FairQueueOptions } from "../../src/base/fair-queue.ts";
import { expectRejection } from "../support/expect-error.ts";

/** Runs work that the test ends, and records which has begun. */
function makeClients(maxRunning: number, options: Partial<FairQueueOptions> = {}) {
  const runFairly = createFairQueue({
    maxRunning,
    queueTimeoutMs: 60_000,
    problem: "busy",
    ...options,
  });
  const begun: string[] = [];
  const ends: ((result: string) => void)[] = [];
  const run = (client: string) =>
    runFairly(client, () => {
      begun.push(client);
      const { promise, resolve } = Promise.withResolvers<string>();
      ends.push(resolve);
      return promise;
    });
  return {
    begun,
    run,
    /** Ends the oldest running work, and waits until the next one has begun. */
    async end() {
      ends.shift()?.("done");
      await Bun.sleep(0);
    },
  };
}

test("work of one client uses all places but one when no other client waits", async () => {
  const { begun, run, end } = makeClients(4);
  const results = Array.from({ length: 6 }, () => run("a"));
  await Bun.sleep(0);
  expect(begun).toEqual(["a", "a", "a"]);
  for (let at = 0; at < 6; at += 1) await end();
  expect(await Promise.all(results)).toEqual(Array.from({ length: 6 }, () => "done"));
  expect(begun).toHaveLength(6);
});

test("work begins at once when all other work is of one client", async () => {
  const { begun, run, end } = makeClients(2);
  const results = [..."aaab"].map(run);
  await Bun.sleep(0);
  expect(begun.join("")).toBe("ab");
  for (let at = 0; at < 4; at += 1) await end();
  await Promise.all(results);
});

test("a client gets half of the places when another has taken the others and has more work", async () => {
  const { begun, run, end } = makeClients(4);
  const results = [..."aaaaaaaa", ..."bbbb"].map(run);
  await Bun.sleep(0);
  for (let at = 0; at < 8; at += 1) await end();
  // Four run at a time. Two are of each, as long as there are any.
  expect(begun.join("")).toBe("aaabbaabbaaa");
  for (let at = 0; at < 4; at += 1) await end();
  await Promise.all(results);
});

test("clients alternate when there is one place", async () => {
  const { begun, run, end } = makeClients(1);
  const results = [..."aaaaabbcc"].map(run);
  for (let at = 0; at < 9; at += 1) await end();
  expect(begun.join("")).toBe("abcabcaaa");
  await Promise.all(results);
});

test("work of one client runs in its order, one piece at a time, when one is the maximum of a client", async () => {
  for (const maxRunning of [3, Number.POSITIVE_INFINITY]) {
    const { begun, run, end } = makeClients(maxRunning, { maxRunningOfClient: 1 });
    const results = [..."aaab"].map(run);
    await Bun.sleep(0);
    const seen: string[] = [];
    for (let at = 0; at < 4; at += 1) {
      seen.push(begun.join(""));
      await end();
    }
    expect(seen).toEqual(["ab", "aba", "aba", "abaa"]);
    await Promise.all(results);
  }
});

test("work is rejected and never begins when it waits for too long, and the next begins", async () => {
  const { begun, run, end } = makeClients(1, { queueTimeoutMs: 20 });
  const first = run("a");
  await expectRejection(run("b"), "unavailable", "busy");
  const next = run("c");
  await end();
  expect(await first).toBe("done");
  await end();
  expect(await next).toBe("done");
  expect(begun).toEqual(["a", "c"]);
});

test("work is rejected when the places are taken, half of which are for one client", async () => {
  const { run, end } = makeClients(1, { maxWaiting: 4 });
  const accepted = [..."aaa"].map(run);
  await expectRejection(run("a"), "unavailable", "busy");
  accepted.push(run("b"), run("c"));
  await expectRejection(run("d"), "unavailable", "busy");
  for (let at = 0; at < 5; at += 1) await end();
  await Promise.all(accepted);
  const last = run("a");
  await end();
  expect(await last).toBe("done");
});

test("the next work begins when work fails", async () => {
  const runFairly = createFairQueue({ maxRunning: 1, queueTimeoutMs: 60_000, problem: "busy" });
  const failed = runFairly("a", () => Promise.reject(new Error("failed")));
  const next = runFairly("a", async () => "done");
  await expect(failed).rejects.toThrow("failed");
  expect(await next).toBe("done");
});
