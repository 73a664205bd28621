/** @returns whether the request is within the limit. If so, the request is counted */
export type RateLimiter = (token_hash: string) => boolean;

/**
 * A token bucket for each API token: bursts of up to `per_second` requests, refilled at the same rate.
 * @param per_second at least 1; 0 disables the limit
 */
export function createRateLimiter(
  per_second: number,
  now_ms = () => performance.now(),
): RateLimiter {
  if (per_second === 0) return () => true;
  const buckets = new Map<string, { tokens: number; refilled_ms: number }>();
  return (token_hash) => {
    const time_ms = now_ms();
    const bucket = buckets.get(token_hash) ?? { tokens: per_second, refilled_ms: time_ms };
    buckets.set(token_hash, bucket);
    const gained = ((time_ms - bucket.refilled_ms) / 1000) * per_second;
    bucket.tokens = Math.min(per_second, bucket.tokens + gained);
    bucket.refilled_ms = time_ms;
    if (bucket.tokens < 1) return false;
    bucket.tokens -= 1;
    return true;
  };
}
