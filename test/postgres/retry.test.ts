import { expect, test } from "bun:test";
import { runAgain, withRetry } from "../../src/postgres/server/retry.ts";
import { expectRejection } from "../support/expect-error.ts";
import { serverError } from "./server-error.ts";

const deadlock = serverError("40P01");

/** Work that fails with these errors, one after the other, and then succeeds. */
function run(errors: readonly Error[], timeoutMs?: number): Promise<string> {
  const left = [...errors];
  const work = async () => {
    const error = left.shift();
    if (error !== undefined) throw error;
    return "done";
  };
  return withRetry(work, undefined, timeoutMs);
}

test("withRetry repeats work as often as it asks for, and rejects with unavailable when the server rolls back five attempts", async () => {
  const four = Array(4).fill(deadlock);
  expect(await run([...Array(50).fill(runAgain), ...four])).toBe("done");
  await expectRejection(run([...four, deadlock]), "unavailable");
});

test("withRetry rejects with the conflict or the error when the timeout has passed", async () => {
  await expectRejection(run([runAgain], -1), "unavailable", /too much contention/);
  await expectRejection(run([deadlock], -1), "unavailable");
});
