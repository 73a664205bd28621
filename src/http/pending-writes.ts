/**
 * Writes from before their body is read until their response is made, and the memory that they hold until it is sent.
 * Each token has at most half of the places and of the memory, so that the writes of others go on. A store has no bound of
 * its own.
 */
import { createBudget } from "../budget.ts";
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
  end(): void;
}

export interface PendingWrites {
  /**
   * @param tokenHash of the token that writes; `null` while the tokens of requests with a body are looked up
   * @throws {AppError} unavailable if the token has too many writes in progress, or all tokens have
   */
  begin(tokenHash: string | null): PendingWrite;
}

/** @param maxPendingWrites number of places */
export function createPendingWrites(
  maxPendingWrites: number,
  maxBytes = MAX_PENDING_BYTES,
): PendingWrites {
  const places = createBudget(maxPendingWrites, "too many writes are in progress");
  const memory = createBudget(maxBytes, "too many bytes of writes are in progress");
  const collect = createCollector();

  return {
    begin(tokenHash) {
      const place = places.share(tokenHash);
      place.take(1);
      const { take, release } = memory.share(tokenHash);
      let recordBytes = 0;
      return {
        addBytes: take,
        reserve(bytes) {
          const added = 2 * bytes - recordBytes;
          if (added <= 0) return;
          take(added);
          recordBytes += added;
          collect(added);
        },
        hold(bytes) {
          const response = memory.share(tokenHash);
          response.change(bytes);
          return response.release;
        },
        end() {
          place.release();
          release();
        },
      };
    },
  };
}
