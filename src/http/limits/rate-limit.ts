import { fail } from "../../base/error.ts";
import type { ClientId } from "../../domain/token.ts";

/** Token buckets of `perSecond`, refilled at that rate; 0 is no limit. An empty one throws {AppError} too_many_requests. */
export function createRateLimiter(perSecond: number, nowMs = () => performance.now()) {
  const buckets = new Map<ClientId, { available: number; refilledMs: number }>();
  return (client: ClientId): void => {
    if (perSecond === 0) return;
    const timeMs = nowMs();
    const bucket = buckets.get(client) ?? { available: perSecond, refilledMs: timeMs };
    buckets.set(client, bucket);
    const gained = ((timeMs - bucket.refilledMs) / 1000) * perSecond;
    bucket.available = Math.min(perSecond, bucket.available + gained);
    bucket.refilledMs = timeMs;
    if (bucket.available < 1) fail("too_many_requests");
    bucket.available -= 1;
  };
}
