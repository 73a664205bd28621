import { expect, test } from "bun:test";
import { type Access, createLimiter, type Limiter } from "../../src/postgres/limiter.ts";
import { expectRejection } from "../expect-error.ts";

/** Work that resolves when the test says so. */
function makeWork() {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const work = { begun: false, resolve, reject, run: () => promise };
  work.run = () => {
    work.begun = true;
    return promise;
  };
  return work;
}

/** Admits work and runs it. */
function admitted(limiter: Limiter, access: Access, work: () => Promise<string>) {
  return limiter.admit(access, () => limiter.run(access, work));
}

const turn = () => Bun.sleep(0);

test("run starts as many tasks as there are connections, and the next when one ends", async () => {
  const limiter = createLimiter({ connections: 2 });
  const works = [makeWork(), makeWork(), makeWork(), makeWork()];
  const results = works.map(({ run }, at) =>
    admitted(limiter, at % 2 === 0 ? "read" : "write", run),
  );
  const begun = () => works.map((work) => work.begun);
  await turn();
  expect(begun()).toEqual([true, true, false, false]);
  works[1]?.resolve("b");
  expect(await results[1]).toBe("b");
  await turn();
  expect(begun()).toEqual([true, true, true, false]);
  works[0]?.reject(new Error("a"));
  await expect(results[0]).rejects.toThrow("a");
  await turn();
  expect(begun()).toEqual([true, true, true, true]);
  expect(limiter.pendingWrites()).toBe(1);
  works[2]?.resolve("c");
  works[3]?.resolve("d");
  expect(await Promise.all([results[2], results[3]])).toEqual(["c", "d"] as never);
  await limiter.idle();
  expect(limiter.pendingWrites()).toBe(0);
});

test("admit counts writes, of which it rejects none", async () => {
  const limiter = createLimiter({ connections: 4 });
  const work = makeWork();
  const results = Array.from({ length: 5000 }, () => limiter.admit("write", work.run, "a"));
  expect(limiter.pendingWrites()).toBe(5000);
  work.resolve("done");
  await Promise.all(results);
  expect(limiter.pendingWrites()).toBe(0);
});

test.each([
  { what: "writes", connections: 3, accesses: ["write", "write", "write"], atOnce: 2 },
  { what: "lists", connections: 4, accesses: ["list", "list", "list"], atOnce: 2 },
  {
    what: "writes and lists",
    connections: 5,
    accesses: ["write", "write", "write", "write", "list", "list", "list", "list"],
    atOnce: 4,
  },
] as const)(
  "run keeps connections for reads when more $what wait, and starts the next one when one ends",
  async ({ connections, accesses, atOnce }) => {
    const limiter = createLimiter({ connections });
    const tasks = accesses.map((access) => ({ access, work: makeWork() }));
    const results = tasks.map(({ access, work }) => limiter.run(access, work.run));
    const begun = () => tasks.map(({ work }) => work.begun);
    await turn();
    expect(begun()).toEqual(tasks.map((_, at) => at < atOnce));
    const reads = Array.from({ length: connections - atOnce }, () =>
      limiter.run("read", async () => "read"),
    );
    expect(await Promise.all(reads)).toEqual(reads.map(() => "read"));
    // The connections of the reads are not given to others.
    await turn();
    expect(begun()).toEqual(tasks.map((_, at) => at < atOnce));
    tasks[0]?.work.resolve("done");
    await results[0];
    await turn();
    expect(begun()).toEqual(tasks.map((_, at) => at < atOnce + 1));
    for (const { work } of tasks) work.resolve("done");
    await Promise.all(results);
    await limiter.idle();
  },
);

test("run rejects a task when it waits too long for a connection, and never starts it", async () => {
  const limiter = createLimiter({ connections: 1, queueTimeoutMs: 20 });
  const slow = makeWork();
  const late = makeWork();
  const result = limiter.run("read", slow.run);
  await expectRejection(limiter.run("write", late.run), "unavailable", "the database is busy");
  expect(limiter.pendingWrites()).toBe(0);
  slow.resolve("slow");
  expect(await result).toBe("slow");
  await limiter.idle();
  expect(late.begun).toBe(false);
  expect(await limiter.run("read", async () => "next")).toBe("next");
});

test("run starts a task when it waits while the timeout of one that has started passes", async () => {
  const limiter = createLimiter({ connections: 1, queueTimeoutMs: 50 });
  const [first, second] = [makeWork(), makeWork()];
  const running = limiter.run("write", first.run);
  const waiting = limiter.run("write", second.run);
  first.resolve("first");
  expect(await running).toBe("first");
  const third = Promise.withResolvers<string>();
  // On any machine, timers fire in the order of their times.
  setTimeout(() => third.resolve(limiter.run("read", async () => "third")), 45);
  setTimeout(() => second.resolve("second"), 55);
  expect(await waiting).toBe("second");
  expect(await third.promise).toBe("third");
});

test("run rejects a task when there is no response, and frees its connection when it ends", async () => {
  const overdue: Promise<unknown>[] = [];
  const limiter = createLimiter({
    connections: 1,
    onTimeout: (work) => overdue.push(work),
  });
  const lost = makeWork();
  const next = makeWork();
  await expectRejection(
    limiter.run("write", lost.run, 20),
    "unavailable",
    "the database does not respond",
  );
  expect(overdue).toEqual([lost.run()]);
  const waiting = limiter.run("read", next.run);
  let idle = false;
  const ended = limiter.idle().then(() => {
    idle = true;
  });
  await turn();
  // On the same connection it would be queued behind the query without a response.
  expect([next.begun, idle]).toEqual([false, false]);
  lost.reject(new Error("the connection has ended"));
  await turn();
  expect(next.begun).toBe(true);
  next.resolve("next");
  expect(await waiting).toBe("next");
  await ended;
});

test.each(["list", "write"] as const)(
  "run starts a %s when there is one connection",
  async (access) => {
    const limiter = createLimiter({ connections: 1 });
    expect(await limiter.run(access, async () => "done")).toBe("done");
  },
);

test("admit rejects a list when 4096 are running or waiting, and still runs reads", async () => {
  const limiter = createLimiter({ connections: 4 });
  const work = makeWork();
  const results = Array.from({ length: 4096 }, () => limiter.admit("list", work.run));
  const late = makeWork();
  const rejected = limiter.admit("list", late.run);
  await expectRejection(rejected, "unavailable", "too many lists are waiting");
  expect(late.begun).toBe(false);
  expect(await admitted(limiter, "read", async () => "read")).toBe("read");
  work.resolve("list");
  await Promise.all(results);
});
