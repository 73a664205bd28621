import { expect } from "bun:test";
import { AppError, type ErrorCode } from "../../src/base/error.ts";

function expectAppError(error: unknown, code: ErrorCode, message?: string | RegExp): AppError {
  if (!(error instanceof AppError)) throw new Error(`Expected an AppError, got: ${error}`);
  expect(error.code, error.message).toBe(code);
  if (typeof message === "string") expect(error.message).toBe(message);
  if (message instanceof RegExp) expect(error.message).toMatch(message);
  return error;
}

/** Expects `work` to throw an AppError with this code and message. @returns the error */
export function expectThrown(work: () => unknown, code: ErrorCode, message?: string | RegExp) {
  let result: unknown;
  try {
    result = work();
  } catch (error) {
    return expectAppError(error, code, message);
  }
  throw new Error(`Expected ${code}, got a result: ${Bun.inspect(result).slice(0, 200)}`);
}

/** Expects `work` to reject with an AppError with this code and message. @returns the error */
export async function expectRejection(
  work: Promise<unknown>,
  code: ErrorCode,
  message?: string | RegExp,
): Promise<AppError> {
  const [settled] = await Promise.allSettled([work]);
  const outcome = () => {
    if (settled.status === "rejected") throw settled.reason;
    return settled.value;
  };
  return expectThrown(outcome, code, message);
}
