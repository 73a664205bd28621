import { expect, test } from "bun:test";
import { LARGE_PAGE_BYTES, MAX_PAGE_BYTES } from "../../src/domain/page.ts";
import { receive } from "../../src/http/input/body.ts";
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
  const held = Array.from({ length: 4 }, () => memory.hold("b", 1000));
  expect(memory.room("b")).toBe(LARGE_PAGE_BYTES);
  expect([memory.hold("c", 50), memory.hold("c", 4)]).toEqual([null, expect.any(Function)]);
  unsent.clear();
  expect([memory.hold("b", 50), memory.room("c")]).toEqual([null, MAX_PAGE_BYTES]);
  expect(memory.bytes()).toBe(0);
  for (const release of held) release?.();
  expect([memory.room("b"), memory.room("a")]).toEqual([MAX_PAGE_BYTES, MAX_PAGE_BYTES]);
  expect(memory.bytes()).toBe(0);
});

test("a body counts nothing when it is received after its write has ended", async () => {
  let total = 0;
  function reserve(_client: string | null, bytes: number) {
    total += bytes;
    return () => {
      total -= bytes;
    };
  }
  const { readable, writable } = new TransformStream<Uint8Array>();
  const request = new Request("http://localhost", { method: "POST", body: readable });
  const { bytes, assign, release } = receive(reserve, request, null);
  const writer = writable.getWriter();
  await writer.write(new Uint8Array(100));
  while (total === 0) await Bun.sleep(0);
  for (let count = 0; count < 2; count += 1) release();
  await writer.write(new Uint8Array(200));
  await writer.close();
  expect(await bytes).toHaveLength(300);
  assign("a");
  expect(total).toBe(0);
});
