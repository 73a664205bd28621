/** Limits requests per token. */
import { fail } from "../error.ts";
import type { Token } from "../token.ts";

export interface RateLimiter {
  /** Counts a request of a token. @returns whether it is within the limit */
  readonly allow: (tokenHash: string) => boolean;
  /**
   * @returns the headers that tell a client its limit, as of its last request
   * @see https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/
   */
  readonly headers: (tokenHash: string) => Readonly<Record<string, string>>;
}

/**
 * A token bucket for each access token: bursts of up to `perSecond` requests, refilled at the same rate.
 * @param perSecond 0 for no limit
 * @returns `null` if there is no limit
 */
export function createRateLimiter(
  perSecond: number,
  nowMs = () => performance.now(),
): RateLimiter | null {
  if (perSecond === 0) return null;
  const buckets = new Map<string, { available: number; refilledMs: number }>();
  const policy = `"token";q=${perSecond};w=1`;
  return {
    allow(tokenHash) {
      const timeMs = nowMs();
      const bucket = buckets.get(tokenHash) ?? { available: perSecond, refilledMs: timeMs };
      buckets.set(tokenHash, bucket);
      const gained = ((timeMs - bucket.refilledMs) / 1000) * perSecond;
      bucket.available = Math.min(perSecond, bucket.available + gained);
      bucket.refilledMs = timeMs;
      if (bucket.available < 1) return false;
      bucket.available -= 1;
      return true;
    },
    headers(tokenHash) {
      const remaining = Math.floor(buckets.get(tokenHash)?.available ?? perSecond);
      // A bucket is full again after a second at most.
      const limit = `"token";r=${remaining}${remaining < perSecond ? ";t=1" : ""}`;
      return { "ratelimit-policy": policy, ratelimit: limit };
    },
  };
}

/** @throws {AppError} too_many_requests */
export function requireWithinRate(rateLimiter: RateLimiter | null, { hash }: Token): void {
  if (rateLimiter?.allow(hash) === false) {
    fail("too_many_requests", "too many requests with this token");
  }
}
