/** Takes one token for a request; `false` when there is none. */
export type Take = (owner: string) => boolean;

/**
 * A token bucket for each owner: `per_second` requests at once, and as many each second.
 * @param per_second at least 1; 0 lets everything through
 */
export function createRateLimit(per_second: number, now_ms = () => performance.now()): Take {
  if (per_second === 0) return () => true;
  const buckets = new Map<string, { tokens: number; filled_ms: number }>();
  return (owner) => {
    const time_ms = now_ms();
    const bucket = buckets.get(owner) ?? { tokens: per_second, filled_ms: time_ms };
    buckets.set(owner, bucket);
    const gained = ((time_ms - bucket.filled_ms) / 1000) * per_second;
    bucket.tokens = Math.min(per_second, bucket.tokens + gained);
    bucket.filled_ms = time_ms;
    if (bucket.tokens < 1) return false;
    bucket.tokens -= 1;
    return true;
  };
}
