import { expect, spyOn, test } from "bun:test";
import { AppError } from "../../src/base/error.ts";
import { createWriteProbe } from "../../src/base/write-probe.ts";
import { expectRejection } from "../support/expect-error.ts";

test("createWriteProbe writes once in 5 seconds for concurrent calls, and a second after a failure", async () => {
  let [timeMs, writes] = [1_000_000, 0];
  let failure: Error | null = null;
  using _clock = spyOn(performance, "now").mockImplementation(() => timeMs);
  const probe = createWriteProbe(async () => {
    writes += 1;
    if (failure !== null) throw failure;
  });
  await Promise.all([probe(), probe(), probe()]);
  timeMs += 4_999;
  await probe();
  expect(writes).toBe(1);
  // A failure is noticed as soon as the last success has expired.
  timeMs += 1;
  failure = new AppError("unavailable", "the disk fails");
  await expectRejection(probe(), "unavailable", /^the disk fails$/);
  // An error of any other kind makes the server unavailable as well. Clients do not see it.
  failure = new Error("no table user_api");
  timeMs += 999;
  await expectRejection(probe(), "unavailable", /^the disk fails$/);
  expect(writes).toBe(2);
  timeMs += 1;
  const message = /^the database cannot be used$/;
  expect((await expectRejection(probe(), "unavailable", message)).cause).toBe(failure);
  failure = null;
  timeMs += 1_000;
  await probe();
  expect(writes).toBe(4);
});
