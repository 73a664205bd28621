/**
 * Graceful shutdown, first phase. `/health` returns 503 and every response has `Connection: close`, so that load
 * balancers and keep-alive clients have moved on before the port closes.
 */

/** Draining is complete after this long without a response. */
const QUIET_MS = 100;
/** Upper bound for draining. Later requests find the port closed. */
const MAX_DRAIN_MS = 2_000;

export interface Drain {
  readonly isDraining: () => boolean;
  /** Calls the listener when draining starts. */
  readonly onStart: (listener: () => void) => void;
  /** Call it for each response while draining. @returns the headers to add to it */
  readonly countResponse: () => Readonly<Record<string, string>>;
  /**
   * Starts draining. Resolves when draining is complete.
   * @param timeoutMs the upper bound, if it is lower than that of this module
   * @returns the time it took, in milliseconds
   */
  readonly start: (timeoutMs: number) => Promise<number>;
}

export function createDrain(): Drain {
  let draining = false;
  let lastResponseMs = 0;
  const listeners: (() => void)[] = [];
  return {
    isDraining: () => draining,
    onStart: (listener) => listeners.push(listener),
    countResponse() {
      lastResponseMs = performance.now();
      return { connection: "close" };
    },
    async start(timeoutMs) {
      draining = true;
      const startedMs = performance.now();
      lastResponseMs = startedMs;
      for (const listener of listeners) listener();
      const deadlineMs = startedMs + Math.min(timeoutMs, MAX_DRAIN_MS);
      while (performance.now() < Math.min(deadlineMs, lastResponseMs + QUIET_MS))
        await Bun.sleep(10);
      return performance.now() - startedMs;
    },
  };
}
