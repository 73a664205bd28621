import { expect, test } from "bun:test";
import { isReaderGone } from "../../src/cli/streams.ts";
import { failed, makeHarness } from "./harness.ts";

test("isReaderGone is true only for the errors of a closed pipe or socket", () => {
  const errors = ["EPIPE", "ECONNRESET", "ENOSPC", "EIO"].map((code) =>
    Object.assign(new Error(code), { code }),
  );
  expect([...errors, null].map(isReaderGone)).toEqual([true, true, false, false, false]);
});

test("import names stdin when it is a directory", async () => {
  using world = makeHarness();
  const outcome = await world.shell('"$@" import users <.');
  expect(outcome).toEqual(failed("Cannot read stdin: it is a directory"));
});
