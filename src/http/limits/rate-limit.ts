/** Limits requests per token. */
import { fail } from "../../base/error.ts";

/** Counts a request of a token. @throws {AppError} too_many_requests */
export type RequireWithinRate = (tokenHash: string) => void;

/**
 * A token bucket for each access token: bursts of up to `perSecond` requests, refilled at the same rate.
 * @param perSecond 0 for no limit
 */
export function createRateLimiter(
  perSecond: number,
  nowMs = () => performance.now(),
): RequireWithinRate {
  if (perSecond === 0) return () => {};
  const buckets = new Map<string, { available: number; refilledMs: number }>();
  return (tokenHash) => {
    const timeMs = nowMs();
    const bucket = buckets.get(tokenHash) ?? { available: perSecond, refilledMs: timeMs };
    buckets.set(tokenHash, bucket);
    const gained = ((timeMs - bucket.refilledMs) / 1000) * perSecond;
    bucket.available = Math.min(perSecond, bucket.available + gained);
    bucket.refilledMs = timeMs;
    if (bucket.available < 1) fail("too_many_requests", "too many requests with this token");
    bucket.available -= 1;
  };
}
