import { expect, test } from "bun:test";
import { runAgain, withRetry } from "../../src/postgres/server/retry.ts";
import { expectRejection } from "../support/expect-error.ts";
import { serverError } from "./server-error.ts";

const deadlock = serverError("40P01");

function failing(...errors: readonly Error[]) {
  const left = [...errors];
  return async () => {
    const error = left.shift();
    if (error !== undefined) throw error;
    return "done";
  };
}

test("withRetry repeats work after any number of times that it asks for, and then after a deadlock", async () => {
  expect(await withRetry(failing(...Array(50).fill(runAgain), deadlock))).toBe("done");
});

test("withRetry rejects with unavailable when the server rolls back five attempts", async () => {
  expect(await withRetry(failing(...Array(4).fill(deadlock)))).toBe("done");
  await expectRejection(withRetry(failing(...Array(5).fill(deadlock))), "unavailable");
});

test("withRetry rejects with the conflict or the error when the timeout has passed", async () => {
  const late = { mayRetry: () => true, timeoutMs: -1 };
  const run = (error: Error) => withRetry(failing(error), late.mayRetry, late.timeoutMs);
  await expectRejection(run(runAgain), "unavailable", /too much contention/);
  await expectRejection(run(deadlock), "unavailable");
});
