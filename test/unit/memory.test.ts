import { expect, test } from "bun:test";
import { yieldToEventLoop } from "../../src/base/event-loop.ts";
import { LARGE_PAGE_BYTES, MAX_PAGE_BYTES } from "../../src/domain/page.ts";
import { receive } from "../../src/http/input/body.ts";
import { createResponseMemory, createWriteMemory } from "../../src/http/limits/memory.ts";
import { expectThrown } from "../support/expect-error.ts";

// That they leave half of the bytes is in route.test.ts.
test("writes of a token leave half of their number to others", () => {
  const reserve = createWriteMemory(16 * 2 ** 12);
  const expectFull = (token: string) =>
    expectThrown(() => reserve(token, 0), "unavailable", "too many writes are in progress");
  const [release = () => {}] = Array.from({ length: 8 }, () => reserve("a", 0));
  expectFull("a");
  for (let count = 0; count < 8; count += 1) reserve("b", 0);
  expectFull("c");
  release();
  expectFull("b");
  expect(reserve("c", 0)).toBeFunction();
  expectFull("a");
});

test("a large page has room when what is unsent or being built leaves it", () => {
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
