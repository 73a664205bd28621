import { expect, test } from "bun:test";
import { isReaderGone } from "../../src/cli/streams.ts";

test("`isReaderGone` is true of a pipe and of a socket that was closed, and of no other fault", () => {
  const faults = ["EPIPE", "ECONNRESET", "ENOSPC", "EIO"].map((code) =>
    Object.assign(new Error(code), { code }),
  );
  expect([...faults, null].map(isReaderGone)).toEqual([true, true, false, false, false]);
});
