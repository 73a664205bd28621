/**
 * Writes from before their body is read until their response is made. Each token has at most half of the places in the
 * queue of the store, and of the memory for bodies, so that the writes of others go on.
 */
import { AppError } from "../error.ts";

/** Maximum size of all request bodies of writes in progress. */
const MAX_PENDING_BYTES = 2 ** 24;

/** A write in progress. */
export interface PendingWrite {
  /**
   * Counts bytes of its body, before they are read. A single body may be larger than the bound.
   * @throws {AppError} unavailable if too many bytes are in progress
   */
  addBytes(bytes: number): void;
  /** Call once. */
  end(): void;
}

export interface PendingWrites {
  /**
   * @param tokenHash of the token that writes; `null` while the tokens of requests with a body are looked up
   * @throws {AppError} unavailable if the token has too many writes in progress, or all tokens have
   */
  begin(tokenHash: string | null): PendingWrite;
}

interface Usage {
  writes: number;
  bytes: number;
}

/** @param tokenHash `null` before the token is known */
function tooMany(tokenHash: string | null, problem: string): AppError {
  const whose = tokenHash === null ? "tokens that are being looked up have" : "this token has";
  return new AppError("unavailable", `${whose} too many ${problem} in progress`);
}

/** @param maxPendingWrites places in the queue of the store */
export function createPendingWrites(
  maxPendingWrites: number,
  maxBytes = MAX_PENDING_BYTES,
): PendingWrites {
  const maxOfToken = {
    writes: Math.max(1, Math.floor(maxPendingWrites / 2)),
    bytes: Math.floor(maxBytes / 2),
  };
  const usageByToken = new Map<string | null, Usage>();
  let totalWrites = 0;
  let totalBytes = 0;

  function usageOf(tokenHash: string | null): Usage {
    const known = usageByToken.get(tokenHash);
    if (known !== undefined) return known;
    const usage = { writes: 0, bytes: 0 };
    usageByToken.set(tokenHash, usage);
    return usage;
  }

  return {
    begin(tokenHash) {
      const ofThis = usageByToken.get(tokenHash)?.writes ?? 0;
      if (ofThis >= maxOfToken.writes) throw tooMany(tokenHash, "writes");
      if (totalWrites >= maxPendingWrites) {
        throw new AppError("unavailable", "too many writes are in progress");
      }
      const usage = usageOf(tokenHash);
      usage.writes += 1;
      totalWrites += 1;
      let ownBytes = 0;
      return {
        addBytes(bytes) {
          // Only if other writes are the reason.
          if (usage.bytes > ownBytes && usage.bytes + bytes > maxOfToken.bytes) {
            throw tooMany(tokenHash, "bytes of request bodies");
          }
          if (totalBytes > ownBytes && totalBytes + bytes > maxBytes) {
            throw new AppError("unavailable", "too many bytes of request bodies are in progress");
          }
          ownBytes += bytes;
          usage.bytes += bytes;
          totalBytes += bytes;
        },
        end() {
          usage.writes -= 1;
          totalWrites -= 1;
          usage.bytes -= ownBytes;
          totalBytes -= ownBytes;
          if (usage.writes === 0) usageByToken.delete(tokenHash);
        },
      };
    },
  };
}
