/**
 * The end of a server, told before it comes: health turns 503, and each answer closes its connection, so
 * that no client sends a request into one that is just being closed.
 */

/** So long without an answer it is taken for known by all. */
const QUIET_MS = 100;
/** Longer it is not waited for it: who does not know by then is refused by a closed port. */
const MAX_DRAIN_MS = 2_000;

export interface Drain {
  readonly isDraining: () => boolean;
  /** What is added to each answer while it drains; it is noted that there was one. */
  readonly headers: () => Readonly<Record<string, string>>;
  /**
   * From now on all are told. Resolves when no more are answered.
   * @param timeout_ms how long it may take at most
   * @returns how long it took, in milliseconds
   */
  readonly start: (timeout_ms: number) => Promise<number>;
}

export function createDrain(): Drain {
  let draining = false;
  let last_response_ms = 0;
  return {
    isDraining: () => draining,
    headers() {
      last_response_ms = performance.now();
      return { connection: "close" };
    },
    async start(timeout_ms) {
      draining = true;
      const started_ms = performance.now();
      last_response_ms = started_ms;
      const deadline_ms = started_ms + Math.min(timeout_ms, MAX_DRAIN_MS);
      while (performance.now() < Math.min(deadline_ms, last_response_ms + QUIET_MS))
        await Bun.sleep(10);
      return performance.now() - started_ms;
    },
  };
}
