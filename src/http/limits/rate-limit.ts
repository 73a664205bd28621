import { fail } from "../../base/error.ts";
import type { ClientId } from "../../domain/token.ts";

/** @throws {AppError} too_many_requests */
export type RequireWithinRate = (client: ClientId) => void;

/** A token bucket for each access token: bursts of up to `perSecond` requests, refilled at the same rate. */
export function createRateLimiter(
  perSecond: number,
  nowMs = () => performance.now(),
): RequireWithinRate {
  if (perSecond === 0) return () => {};
  const buckets = new Map<ClientId, { available: number; refilledMs: number }>();
  return (client) => {
    const timeMs = nowMs();
    const bucket = buckets.get(client) ?? { available: perSecond, refilledMs: timeMs };
    buckets.set(client, bucket);
    const gained = ((timeMs - bucket.refilledMs) / 1000) * perSecond;
    bucket.available = Math.min(perSecond, bucket.available + gained);
    bucket.refilledMs = timeMs;
    if (bucket.available < 1) fail("too_many_requests", "too many requests with this token");
    bucket.available -= 1;
  };
}
