import { expect, test } from "bun:test";
import { isReaderGone } from "../../src/cli/streams.ts";

test("isReaderGone is true only for the errors of a closed pipe or socket", () => {
  const errors = ["EPIPE", "ECONNRESET", "ENOSPC", "EIO"].map((code) =>
    Object.assign(new Error(code), { code }),
  );
  expect([...errors, null].map(isReaderGone)).toEqual([true, true, false, false, false]);
});
