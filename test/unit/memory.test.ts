import { expect, test } from "bun:test";
import { createWriteMemory } from "../../src/http/limits/memory.ts";
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
