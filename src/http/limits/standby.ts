/** Bounds the age of what a standby returns, and a server from which one may have taken over. */
import { fail } from "../../base/error.ts";
import type { Store } from "../../domain/store.ts";

const MAX_SECONDS_BEHIND = 60;

/**
 * @returns the age of the data, in seconds; `null` if no other server can have newer data
 * @throws {AppError} unavailable if it is too old: tokens may have been revoked since
 */
export function requireRecent(
  { secondsBehind }: Pick<Store, "secondsBehind">,
  waitsFor: string | null = null,
): number | null {
  const seconds = secondsBehind();
  const reason = waitsFor === null ? "" : `: the server waits for ${waitsFor}`;
  if (seconds !== null && seconds > MAX_SECONDS_BEHIND)
    fail("unavailable", `the data may be more than ${MAX_SECONDS_BEHIND} s old${reason}`);
  return seconds;
}
