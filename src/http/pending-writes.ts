/**
 * Writes from before their body is read until their response is made, and the memory that they hold until it is sent.
 * Each token has at most half of the places and of the memory, so that the writes of others go on. A store has no bound of
 * its own.
 */
import { fail } from "../error.ts";
import { createCollector } from "../garbage.ts";
import type { ReserveMemory } from "../record.ts";

/** Maximum size of all request bodies of writes in progress, of the large records that they change, and of responses. */
const MAX_PENDING_BYTES = 2 ** 24;

/** A write in progress. */
export interface PendingWrite {
  /**
   * Counts bytes of its body, before they are read. A single body may be larger than the bound.
   * @throws {AppError} unavailable if too many bytes are in progress
   */
  addBytes(bytes: number): void;
  /** Counts the record twice: as it is read, and as it is returned. A single one may be larger than the bound. */
  readonly reserve: ReserveMemory;
  /**
   * Counts its response, instead of its body and its record. No bound is checked, because it is hardly larger than both.
   * @returns a function to call when the response is sent. It may be called several times
   */
  hold(bytes: number): () => void;
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

/** @param tokenHash `null` before the token is known. @throws {AppError} unavailable */
function failTooMany(tokenHash: string | null, problem: string): never {
  const whose = tokenHash === null ? "tokens that are being looked up have" : "this token has";
  fail("unavailable", `${whose} too many ${problem} in progress`);
}

/** @param maxPendingWrites number of places */
export function createPendingWrites(
  maxPendingWrites: number,
  maxBytes = MAX_PENDING_BYTES,
): PendingWrites {
  const maxOfToken = {
    writes: Math.max(1, Math.floor(maxPendingWrites / 2)),
    bytes: Math.floor(maxBytes / 2),
  };
  const usageByToken = new Map<string | null, Usage>();
  const collect = createCollector();
  let totalWrites = 0;
  let totalBytes = 0;

  function usageOf(tokenHash: string | null): Usage {
    const known = usageByToken.get(tokenHash);
    if (known !== undefined) return known;
    const usage = { writes: 0, bytes: 0 };
    usageByToken.set(tokenHash, usage);
    return usage;
  }

  function count(usage: Usage, bytes: number): void {
    usage.bytes += bytes;
    totalBytes += bytes;
  }

  return {
    begin(tokenHash) {
      const ofThis = usageByToken.get(tokenHash)?.writes ?? 0;
      if (ofThis >= maxOfToken.writes) failTooMany(tokenHash, "writes");
      if (totalWrites >= maxPendingWrites) fail("unavailable", "too many writes are in progress");
      const usage = usageOf(tokenHash);
      usage.writes += 1;
      totalWrites += 1;
      /** Of its body and its record. */
      let ownBytes = 0;
      let recordBytes = 0;

      /** Counts a body or a record before it is read. @throws {AppError} unavailable */
      function add(bytes: number): void {
        // Only if other writes are the reason.
        if (usage.bytes > ownBytes && usage.bytes + bytes > maxOfToken.bytes) {
          failTooMany(tokenHash, "bytes of writes");
        }
        if (totalBytes > ownBytes && totalBytes + bytes > maxBytes) {
          fail("unavailable", "too many bytes of writes are in progress");
        }
        count(usage, bytes);
        ownBytes += bytes;
      }

      function forgetIfUnused(): void {
        if (usage.writes + usage.bytes === 0) usageByToken.delete(tokenHash);
      }

      return {
        addBytes: add,
        reserve(bytes) {
          const added = 2 * bytes - recordBytes;
          if (added <= 0) return;
          add(added);
          recordBytes += added;
          collect(added);
        },
        hold(bytes) {
          let responseBytes = bytes;
          count(usage, bytes);
          return () => {
            if (responseBytes === 0) return;
            count(usage, -responseBytes);
            responseBytes = 0;
            // Other writes of the token may have begun since.
            forgetIfUnused();
          };
        },
        end() {
          usage.writes -= 1;
          totalWrites -= 1;
          count(usage, -ownBytes);
          forgetIfUnused();
        },
      };
    },
  };
}
