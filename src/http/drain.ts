/**
 * The end of a server, told before it comes: health turns 503, and each answer closes its connection, so
 * that no client sends a request into one that is just being closed.
 */

/** So long without an answer it is taken for known by all. */
const QUIET_MS = 100;
/** Longer it is not waited for it: who does not know by then is refused by a closed port. */
const LONGEST_MS = 2_000;

export interface Drain {
  readonly isDraining: () => boolean;
  /** What is added to each answer while it drains; it is noted that there was one. */
  readonly headers: () => Readonly<Record<string, string>>;
  /**
   * From now on all are told. Resolves when no more are answered.
   * @param patience_ms how long it may take at most
   * @returns how long it took, in milliseconds
   */
  readonly begin: (patience_ms: number) => Promise<number>;
}

export function createDrain(): Drain {
  let draining = false;
  let last_ms = 0;
  return {
    isDraining: () => draining,
    headers() {
      last_ms = performance.now();
      return { connection: "close" };
    },
    async begin(patience_ms) {
      draining = true;
      const began_ms = performance.now();
      last_ms = began_ms;
      const deadline_ms = began_ms + Math.min(patience_ms, LONGEST_MS);
      while (performance.now() < Math.min(deadline_ms, last_ms + QUIET_MS)) await Bun.sleep(10);
      return performance.now() - began_ms;
    },
  };
}
