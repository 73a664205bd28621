/** The lease under which a generation is written. Its id is the name of that generation. */
import type { Lease } from "../../lease.ts";

export interface Terms {
  /**
   * Waits for the lease, unless this process has it.
   * @returns the number and the name of the generation
   */
  acquire(signal: AbortSignal): Promise<{ readonly number: number; readonly name: string }>;
  isHeld(): boolean;
  /** Gives the lease up. The next generation has another. Resolves when it is released */
  end(): Promise<void>;
}

/**
 * @param newLease returns a lease on the archive that nothing else uses
 * @param onLost called with the reason when the archive is that of another server
 */
export function createTerms(newLease: () => Lease, onLost: (reason: string) => void): Terms {
  let current: Lease | null = null;
  /** Resolves when the last lease is released. */
  let released: Promise<void> = Promise.resolve();

  function begin(): Lease {
    const lease = newLease();
    void lease.whenLost.then((holder) => {
      if (lease !== current) return;
      onLost(
        holder === null ? "the object `lease` was deleted" : `${holder} has taken over the archive`,
      );
    });
    return lease;
  }

  return {
    async acquire(signal) {
      await released;
      current ??= begin();
      const { id: name } = current;
      return { number: await current.acquire(signal), name };
    },
    isHeld: () => current?.isHeld() === true,
    end() {
      if (current !== null) released = current.release();
      current = null;
      return released;
    },
  };
}
