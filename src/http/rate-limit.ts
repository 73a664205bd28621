/** Limits requests per token. */
import { fail } from "../error.ts";
import type { Token } from "../token.ts";

export interface RateLimiter {
  /** Counts a request of a token. @returns whether it is within the limit */
  readonly allow: (token_hash: string) => boolean;
  /**
   * @returns the headers that tell a client its limit, as of its last request
   * @see https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/
   */
  readonly headers: (token_hash: string) => Readonly<Record<string, string>>;
}

/**
 * A token bucket for each API token: bursts of up to `per_second` requests, refilled at the same rate.
 * @param per_second 0 for no limit
 * @returns `null` if there is no limit
 */
export function createRateLimiter(
  per_second: number,
  now_ms = () => performance.now(),
): RateLimiter | null {
  if (per_second === 0) return null;
  const buckets = new Map<string, { available: number; refilled_ms: number }>();
  const policy = `"token";q=${per_second};w=1`;
  return {
    allow(token_hash) {
      const time_ms = now_ms();
      const bucket = buckets.get(token_hash) ?? { available: per_second, refilled_ms: time_ms };
      buckets.set(token_hash, bucket);
      const gained = ((time_ms - bucket.refilled_ms) / 1000) * per_second;
      bucket.available = Math.min(per_second, bucket.available + gained);
      bucket.refilled_ms = time_ms;
      if (bucket.available < 1) return false;
      bucket.available -= 1;
      return true;
    },
    headers(token_hash) {
      const remaining = Math.floor(buckets.get(token_hash)?.available ?? per_second);
      // A bucket is full again after a second at most.
      const limit = `"token";r=${remaining}${remaining < per_second ? ";t=1" : ""}`;
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
