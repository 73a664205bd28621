/** Graceful shutdown, first phase: 503 of `/health` and `Connection: close` make clients move on before the port closes. */

const PAUSE_MS = 10;
/** Draining ends after so many pauses without a response. Not after a time: after a standstill, timers run before requests. */
const QUIET_PAUSES = 10;
/** Upper bound for draining. Later requests find the port closed. */
const MAX_DRAIN_MS = 2_000;

export type Drain = ReturnType<typeof createDrain>;

export function createDrain() {
  const started = new AbortController();
  let quietPauses = 0;
  let reasons = 0;
  return {
    isDraining: () => started.signal.aborted,
    closesConnections: () => reasons > 0 || started.signal.aborted,
    closeConnections(isOn: boolean): void {
      reasons += isOn ? 1 : -1;
    },
    signal: started.signal,
    /** Call it for each response while draining. @returns the headers to add to it */
    countResponse(): Readonly<Record<string, string>> {
      quietPauses = 0;
      return { connection: "close" };
    },
    /** @param timeoutMs the upper bound, if it is lower than that of this module. @returns the time it took, in ms */
    async start(timeoutMs: number): Promise<number> {
      const startedMs = performance.now();
      started.abort();
      const deadlineMs = startedMs + Math.min(timeoutMs, MAX_DRAIN_MS);
      while (quietPauses < QUIET_PAUSES && performance.now() < deadlineMs) {
        quietPauses += 1;
        await Bun.sleep(PAUSE_MS);
      }
      return performance.now() - startedMs;
    },
  };
}
