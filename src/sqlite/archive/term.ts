/** The lease under which a generation is written, and the name of that generation. One follows the other. */
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

interface Term {
  readonly lease: Lease;
  readonly name: string;
}

/**
 * @param newLease returns a lease on the archive that nothing else uses
 * @param onLost called with the reason when the archive is that of another server
 */
export function createTerms(newLease: () => Lease, onLost: (reason: string) => void): Terms {
  let term: Term | null = null;
  /** Of the last lease. */
  let released: Promise<void> = Promise.resolve();

  function begin(): Term {
    const begun = { lease: newLease(), name: crypto.randomUUID() };
    void begun.lease.whenLost.then((holder) => {
      if (term !== begun) return;
      onLost(
        holder === null ? "the object `lease` was deleted" : `${holder} has taken over the archive`,
      );
    });
    return begun;
  }

  return {
    async acquire(signal) {
      await released;
      term ??= begin();
      const { lease, name } = term;
      return { number: await lease.acquire(signal), name };
    },
    isHeld: () => term?.lease.isHeld() === true,
    end() {
      if (term !== null) released = term.lease.release();
      term = null;
      return released;
    },
  };
}
