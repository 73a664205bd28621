import { expect, test } from "bun:test";
import { yieldToEventLoop } from "../../src/base/event-loop.ts";
import { LARGE_PAGE_BYTES, MAX_PAGE_BYTES } from "../../src/domain/page.ts";
import { receive } from "../../src/http/input/body.ts";
import { createResponseMemory, createWriteMemory } from "../../src/http/limits/memory.ts";
import { createRateLimiter } from "../../src/http/limits/rate-limit.ts";
import { createSumQueue } from "../../src/http/limits/sum-queue.ts";
import { createYieldToClients } from "../../src/http/limits/yielding.ts";
import { expectRejection, expectThrown } from "../support/expect-error.ts";

/** @returns how many of `tries` requests are allowed, with this pause after each */
function makeLimit(perSecond: number) {
  let timeMs = 1_000_000;
  const requireWithinRate = createRateLimiter(perSecond, () => timeMs);
  return (tries: number, pauseMs = 0) => {
    let passed = 0;
    for (let count = 0; count < tries; count += 1) {
      try {
        requireWithinRate("a");
        passed += 1;
      } catch {}
      timeMs += pauseMs;
    }
    return passed;
  };
}

test.each([
  [0, 0],
  [99, 0],
  [100, 1],
  [250, 2],
  [999, 9],
  [1001, 10],
  [3_600_000, 10],
])("%i ms after a burst of 10, %i requests are allowed at a rate of 10", (pauseMs, expected) => {
  const passing = makeLimit(10);
  expect([passing(14), passing(1, pauseMs), passing(15)]).toEqual([10, 0, expected]);
});

test("createRateLimiter allows exactly the rate when requests are continuous, and any when it is 0", () => {
  // A burst of 4, and 4 in each of the 10 seconds except for the last millisecond.
  expect(makeLimit(4)(10_000, 1)).toBe(4 + 39);
  expect(makeLimit(0)(1000)).toBe(1000);
});

test("sums run one after the other, one of each token, two wait, and a client that has disconnected is skipped", async () => {
  const queue = createSumQueue();
  const begun: string[] = [];
  const held = new Map<string, PromiseWithResolvers<string>>();
  const send = (client: string, signal = new AbortController().signal) =>
    queue(client, signal, () => {
      begun.push(client);
      return held.getOrInsert(client, Promise.withResolvers()).promise;
    });
  const first = send("a");
  const left = new AbortController();
  const skipped = expectRejection(send("b", left.signal), "unavailable", /disconnected$/);
  await expectRejection(send("a"), "unavailable", /another one of this token/);
  const third = send("c");
  await expectRejection(send("d"), "unavailable", /^too many sums/);
  await Bun.sleep(0);
  expect(begun).toEqual(["a"]);
  left.abort();
  held.get("a")?.reject(new Error("no"));
  await expect(first).rejects.toThrow("no");
  await skipped;
  await Bun.sleep(0);
  expect(begun).toEqual(["a", "c"]);
  const fourth = send("a");
  held.get("c")?.resolve("sum of c");
  expect(await third).toBe("sum of c");
  held.set("a", Promise.withResolvers());
  held.get("a")?.resolve("sum of a");
  expect(await fourth).toBe("sum of a");
});

/** Sends requests. Time passes only while one is handled, and always the same. */
function makeClients(requestMs: number) {
  let timeMs = 0;
  const yieldToClients = createYieldToClients(() => timeMs);
  const handled: string[] = [];
  const handle = (request: string) => {
    timeMs += requestMs;
    handled.push(request);
  };
  return {
    handled,
    send(client: string, name = client) {
      const turn = yieldToClients(client);
      if (turn === null) handle(name);
      else void turn.then(() => handle(name));
    },
    async untilHandled(count: number) {
      while (handled.length < count) await yieldToEventLoop();
    },
    pass(ms: number) {
      timeMs += ms;
    },
  };
}

test("a request is handled immediately when the turn has just begun", async () => {
  const { send, handled, pass } = makeClients(0.1);
  for (let turn = 1; turn <= 100; turn += 1) {
    for (let sent = 0; sent < 10; sent += 1) send("a");
    expect(handled).toHaveLength(10 * turn);
    await yieldToEventLoop();
    pass(turn % 20);
  }
});

test("clients are served round robin when all of them wait, and a new one immediately when a turn has just begun", async () => {
  const { send, handled, untilHandled } = makeClients(1);
  for (let sent = 0; sent < 20; sent += 1) send("a");
  for (const client of ["b", "c", "d"]) for (let sent = 0; sent < 5; sent += 1) send(client);
  await untilHandled(35);
  const first = handled.indexOf("b");
  expect(handled.slice(first, first + 20).join("")).toBe("bcda".repeat(5));
  for (let sent = 0; sent < 20; sent += 1) send("a");
  await yieldToEventLoop();
  send("e");
  expect([handled.length < 55, handled.at(-1)]).toEqual([true, "e"]);
  await untilHandled(56);
});

test("requests of a client are handled in their order when new ones arrive meanwhile", async () => {
  const { send, handled, untilHandled } = makeClients(1);
  const names = Array.from({ length: 60 }, (_, at) => `${at}`);
  for (const [at, name] of names.entries()) {
    send("a", name);
    if (at >= 30) await yieldToEventLoop();
  }
  await untilHandled(names.length);
  expect(handled).toEqual(names);
});

test("one turn of the event loop handles one request when each takes long", async () => {
  const { send, handled, untilHandled } = makeClients(50);
  for (let sent = 0; sent < 6; sent += 1) send("a");
  // The first one is handled before it is known that requests take long.
  const counts = [handled.length];
  while (handled.length < 6) {
    await yieldToEventLoop();
    counts.push(handled.length);
  }
  const steps = counts.slice(1).map((count, at) => count - (counts[at] ?? 0));
  expect(Math.max(...steps)).toBe(1);
  await untilHandled(6);
  // All have been handled: no one waits any more.
  send("b");
  expect(handled.at(-1)).toBe("b");
});

test("a large page has room when what is unsent or being built leaves it, and counts once when responses share it", () => {
  const unsent = new Set<Request>();
  const memory = createResponseMemory({ isUnsent: (request) => unsent.has(request) }, false);
  const page = "x".repeat(MAX_PAGE_BYTES);
  for (let count = 0; count < 4; count += 1) {
    expect(memory.room("a")).toBe(MAX_PAGE_BYTES);
    const request = new Request("http://localhost");
    unsent.add(request);
    memory.reserve(request, "a", page);
  }
  expect([memory.room("a"), memory.room("b")]).toEqual([LARGE_PAGE_BYTES, MAX_PAGE_BYTES]);
  const held = Array.from({ length: 4 }, () => memory.hold("b", 1000));
  expect([memory.hold("c", 50), memory.hold("c", 4)]).toEqual([null, expect.any(Function)]);
  unsent.clear();
  expect([memory.room("b"), memory.room("a")]).toEqual([LARGE_PAGE_BYTES, MAX_PAGE_BYTES]);
  for (const release of held) release?.();
  expect([memory.room("b"), memory.bytes()]).toEqual([MAX_PAGE_BYTES, 0]);
  const shared = new Blob([page]);
  for (const request of ["a", "b"].map((host) => new Request(`http://${host}`))) {
    unsent.add(request);
    memory.reserve(request, "a", shared);
  }
  expect(memory.bytes()).toBe(MAX_PAGE_BYTES);
});

test("a page on a Unix socket takes one turn for each of its parts when its client reads quickly", async () => {
  const memory = createResponseMemory({ isUnsent: () => false }, true);
  const page = "x".repeat(2 ** 20);
  const read = new Response(memory.reserve(new Request("http://localhost"), "a", page)).text();
  let turns = 0;
  for (; Bun.peek.status(read) === "pending"; turns += 1) await yieldToEventLoop();
  expect([turns >= 16, await read]).toEqual([true, page]);
});

test("a body counts nothing when its write has ended", () => {
  const reserve = createWriteMemory(2 ** 13);
  const request = new Request("http://localhost", { headers: { "content-length": "4096" } });
  const { assign, release } = receive(reserve, request, "a");
  release();
  assign("a");
  reserve("a", 4096);
  release();
  expectThrown(() => reserve("a", 4096), "unavailable", "too many writes are in progress");
});
