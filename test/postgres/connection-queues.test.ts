import { expect, jest, test } from "bun:test";
import { createConnectionQueues, type Kind } from "../../src/postgres/server/connection-queues.ts";
import { expectRejection } from "../support/expect-error.ts";

type Options = Parameters<typeof createConnectionQueues>[0];

/** Queues whose work ends when the test says so. */
function makeQueues(options: Options) {
  const queues = createConnectionQueues(options);
  const begun: string[] = [];
  const ends = new Map<string, PromiseWithResolvers<string>>();
  return {
    idle: queues.idle,
    begun,
    run(kind: Kind, name: string, timeoutMs?: number, client?: string): Promise<string> {
      const end = Promise.withResolvers<string>();
      ends.set(name, end);
      const work = () => {
        begun.push(name);
        return end.promise;
      };
      return queues.run(kind, work, timeoutMs, client);
    },
    async end(...names: readonly string[]) {
      for (const name of names) ends.get(name)?.resolve(name);
      await Bun.sleep(0);
    },
    fail: (name: string) => ends.get(name)?.reject(new Error(name)),
  };
}

for (const [connections, shares] of [
  [1, { read: 1, list: 1, write: 1, background: 1 }],
  [2, { read: 2, list: 1, write: 1, background: 1 }],
  [5, { read: 5, list: 2, write: 4, background: 2 }],
  [10, { read: 10, list: 5, write: 8, background: 2 }],
] as const)
  test(`of ${connections} connections, each kind of work runs on its share`, async () => {
    for (const [kind, share] of Object.entries(shares)) {
      const { begun, run } = makeQueues({ connections });
      // Those that wait are rejected some time.
      for (let at = 0; at < share + 2; at += 1) run(kind as Kind, `${at}`).catch(() => {});
      await Bun.sleep(0);
      expect(begun).toHaveLength(share);
    }
  });

test("a list of another client begins before further lists of one that has some", async () => {
  const { begun, run, end } = makeQueues({ connections: 4 });
  const names = ["a1", "a2", "a3", "a4", "b1", "b2", "c1"];
  const results = names.map((name) => run("list", name, undefined, name.charAt(0)));
  await Bun.sleep(0);
  for (let at = 0; at < names.length; at += 1) await end(begun[at] ?? "");
  expect(begun).toEqual(["a1", "a2", "b1", "c1", "a3", "b2", "a4"]);
  expect(await Promise.all(results)).toEqual(names);
});

test("work of several kinds begins in the order of its arrival, and reads get the connection that is kept for them", async () => {
  const { begun, run, end, fail, idle } = makeQueues({ connections: 4 });
  const others = ["list 1", "list 2", "write 1", "list 3", "write 2", "background 1", "write 3"];
  const results = others.map((name) => run(name.split(" ")[0] as Kind, name));
  for (const read of ["read 1", "read 2", "read 3"]) void run("read", read);
  await Bun.sleep(0);
  expect(begun).toEqual(["list 1", "list 2", "write 1", "read 1"]);
  // The next list has come before the writes, but its kind has its share.
  await end("write 1");
  expect(begun.slice(4)).toEqual(["write 2"]);
  // The connection of a read goes to no other kind.
  await end("read 1");
  expect(begun.slice(5)).toEqual(["read 2"]);
  fail("list 1");
  await expect(results[0]).rejects.toThrow("list 1");
  await Bun.sleep(0);
  expect(begun.slice(6)).toEqual(["list 3"]);
  await end("list 2");
  expect(begun.slice(7)).toEqual(["background 1"]);
  await end("list 3");
  expect(begun.slice(8)).toEqual(["write 3"]);
  await end("write 2", "write 3", "background 1", "read 2", "read 3");
  await end("read 3");
  await idle();
});

test("work that waits too long for a connection is rejected and never begins, unlike the next", async () => {
  const { begun, run, end, idle } = makeQueues({ connections: 1, queueTimeoutMs: 20 });
  const slow = run("read", "slow");
  await expectRejection(run("write", "late"), "unavailable", "the database is busy");
  await end("slow");
  expect(await slow).toBe("slow");
  await idle();
  const next = run("write", "next");
  await end("next");
  expect(await next).toBe("next");
  expect(begun).toEqual(["slow", "next"]);
});

test("work without a response is rejected, and its connection stays busy until it ends", async () => {
  const overdue: Promise<unknown>[] = [];
  const onTimeout = (work: Promise<unknown>) => void overdue.push(work);
  const { begun, run, end, fail, idle } = makeQueues({ connections: 1, onTimeout });
  jest.useFakeTimers();
  const problem = "the database does not respond";
  const rejected = expectRejection(run("write", "lost"), "unavailable", problem);
  await new Promise(setImmediate);
  const overdueAt = [9_999, 1].map((ms) => jest.advanceTimersByTime(ms) && overdue.length);
  jest.useRealTimers();
  expect(overdueAt).toEqual([0, 1]);
  await rejected;
  const next = run("read", "next");
  const ended = idle();
  await Bun.sleep(0);
  // On the same connection it would be queued behind the query without a response.
  expect([begun, Bun.peek.status(ended)]).toEqual([["lost"], "pending"]);
  fail("lost");
  await Bun.sleep(0);
  expect(begun).toEqual(["lost", "next"]);
  await end("next");
  expect(await next).toBe("next");
  await ended;
});
