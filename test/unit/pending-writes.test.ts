import { expect, test } from "bun:test";
import { createPendingWrites } from "../../src/http/limits/pending-writes.ts";
import { expectThrown } from "../support/expect-error.ts";

test.each([
  ["bytes", 2 ** 16],
  ["number", 0],
])("writes of a token leave half to others when their %s is the maximum", (_what, bytes) => {
  const half = bytes === 0 ? 8 : 2;
  const begin = createPendingWrites(4 * 2 ** 14 * (bytes === 0 ? 1 : 4));
  const expectFull = (token: string) =>
    expectThrown(() => begin(token, bytes), "unavailable", "too many writes are in progress");
  const [end = () => {}] = Array.from({ length: half }, () => begin("a", bytes));
  expectFull("a");
  for (let count = 0; count < half; count += 1) begin("b", bytes);
  expectFull("c");
  end();
  expectFull("b");
  expect(begin("c", bytes)).toBeFunction();
  expectFull("a");
});
