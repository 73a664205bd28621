/** Health check by writing: nothing else reveals a full or failing disk. */
import { AppError } from "./error.ts";

const SUCCESS_TTL_MS = 5_000;
const FAILURE_TTL_MS = 1_000;

/** @returns a function that throws {AppError} unavailable if the database cannot be written. It writes rarely */
export function createWriteProbe(write: () => Promise<unknown>): () => Promise<void> {
  let lastResult = Promise.resolve();
  let validUntilMs = Number.NEGATIVE_INFINITY;

  async function probe(): Promise<void> {
    validUntilMs = Number.POSITIVE_INFINITY;
    let ttlMs = FAILURE_TTL_MS;
    try {
      await write();
      ttlMs = SUCCESS_TTL_MS;
    } catch (error) {
      if (error instanceof AppError && error.code === "unavailable") throw error;
      // The log has the cause.
      throw new AppError("unavailable", "the database cannot be used", { cause: error });
    } finally {
      validUntilMs = performance.now() + ttlMs;
    }
  }

  return () => {
    if (performance.now() >= validUntilMs) {
      lastResult = probe();
      // Callers get the rejection. Without a caller it must not count as unhandled.
      lastResult.catch(() => {});
    }
    return lastResult;
  };
}
