/** Sums run one after the other: each can read all orders. */
import { fail } from "../../base/error.ts";
import type { ClientId } from "../../domain/token.ts";
import { createShares } from "./memory.ts";

/** One that runs, and two that wait. So a token, which has at most half of the places, has one. */
const MAX_PLACES = 3;

export function createSumQueue() {
  const problem = "too many sums are in progress, or another one of this token";
  const places = createShares(MAX_PLACES, problem);
  let last: Promise<unknown> = Promise.resolve();
  /** @throws {AppError} unavailable if the client disconnects while it waits, or there is no place */
  return async <Result>(client: ClientId, signal: AbortSignal, sum: () => Promise<Result>) => {
    const release = places.reserve(client, 1);
    const result = last.then(() => {
      if (signal.aborted) fail("unavailable", "the client has disconnected");
      return sum();
    });
    last = result.catch(() => {}).finally(release);
    return await result;
  };
}
