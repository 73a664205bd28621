/**
 * Bounds the request bodies of all writes in progress. Each token has at most half, so that the writes of others go on. A
 * store has no bound of its own.
 */
import { fail } from "../../base/error.ts";

const MAX_PENDING_BYTES = 2 ** 24;
/** A write counts at least this much, which allows 4,096 of them. */
const MIN_WRITE_BYTES = 2 ** 12;

/**
 * @param tokenHash of the token that writes
 * @param bodyBytes size of the request body
 * @returns a function to call at the end of the write
 * @throws {AppError} unavailable if the token has too many writes in progress, or all tokens have
 */
export type BeginWrite = (tokenHash: string | null, bodyBytes: number) => () => void;

export function createPendingWrites(maxBytes = MAX_PENDING_BYTES): BeginWrite {
  const bytesOf = new Map<string | null, number>();
  let allBytes = 0;

  function add(tokenHash: string | null, bytes: number): void {
    allBytes += bytes;
    const own = (bytesOf.get(tokenHash) ?? 0) + bytes;
    if (own === 0) bytesOf.delete(tokenHash);
    else bytesOf.set(tokenHash, own);
  }

  return (tokenHash, bodyBytes) => {
    const bytes = Math.max(bodyBytes, MIN_WRITE_BYTES);
    const own = bytesOf.get(tokenHash) ?? 0;
    if (allBytes + bytes > maxBytes || own + bytes > maxBytes / 2) {
      fail("unavailable", "too many writes are in progress");
    }
    add(tokenHash, bytes);
    return () => add(tokenHash, -bytes);
  };
}
