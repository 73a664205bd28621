import { expect, test } from "bun:test";
import { versionConflict, withRetry } from "../../src/postgres/retry.ts";
import { expectRejection } from "../expect-error.ts";
import { serverError } from "./server-error.ts";

const deadlock = serverError("40P01");

/** @returns work that fails with the errors, one after the other, and then succeeds */
function failing(...errors: readonly Error[]) {
  const left = [...errors];
  return async () => {
    const error = left.shift();
    if (error !== undefined) throw error;
    return "done";
  };
}

function repeat(count: number, error: Error): readonly Error[] {
  return Array.from({ length: count }, () => error);
}

test("withRetry repeats work after any number of version conflicts, and then after a deadlock", async () => {
  expect(await withRetry(failing(...repeat(50, versionConflict), deadlock))).toBe("done");
});

test("withRetry rejects with unavailable when the server rolls back five attempts", async () => {
  expect(await withRetry(failing(...repeat(4, deadlock)))).toBe("done");
  await expectRejection(withRetry(failing(...repeat(5, deadlock))), "unavailable");
});

test("withRetry rejects with the conflict or the error when the timeout has passed", async () => {
  const late = { mayRetry: () => true, timeoutMs: -1 };
  const run = (error: Error) => withRetry(failing(error), late.mayRetry, late.timeoutMs);
  await expectRejection(run(versionConflict), "unavailable", /too much contention/);
  await expectRejection(run(deadlock), "unavailable");
});
