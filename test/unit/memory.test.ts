import { expect, test } from "bun:test";
import { LARGE_PAGE_BYTES, MAX_PAGE_BYTES } from "../../src/domain/page.ts";
import { createResponseMemory, createWriteMemory } from "../../src/http/limits/memory.ts";
import { expectThrown } from "../support/expect-error.ts";

test.each([
  ["bytes", 2 ** 16],
  ["number", 0],
])("writes of a token leave half to others when their %s is the maximum", (_what, bytes) => {
  const half = bytes === 0 ? 8 : 2;
  const reserve = createWriteMemory(4 * 2 ** 14 * (bytes === 0 ? 1 : 4));
  const expectFull = (token: string) =>
    expectThrown(() => reserve(token, bytes), "unavailable", "too many writes are in progress");
  const [release = () => {}] = Array.from({ length: half }, () => reserve("a", bytes));
  expectFull("a");
  for (let count = 0; count < half; count += 1) reserve("b", bytes);
  expectFull("c");
  release();
  expectFull("b");
  expect(reserve("c", bytes)).toBeFunction();
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
  memory.hold(4 * MAX_PAGE_BYTES);
  expect(memory.room("b")).toBe(LARGE_PAGE_BYTES);
  unsent.clear();
  expect([memory.room("b"), memory.room("a")]).toEqual([MAX_PAGE_BYTES, MAX_PAGE_BYTES]);
  expect(memory.bytes()).toBe(0);
});
