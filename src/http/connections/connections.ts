export const IDLE_TIMEOUT_S = 30;

/** When a server stops, idle connections are closed after this. Bun does not close those without a request, and on TLS none. */
const IDLE_MS = 250;
const POLL_MS = 10;

/** All servers of Bun that still have connections. There are several after the certificate was reloaded. */
export type Servers = Set<Bun.Server<unknown>>;

export type Connections = ReturnType<typeof connectionsOf>;

export function connectionsOf(servers: Servers) {
  // Bun does not need the server of the request.
  const anyServer = () => [...servers][0];
  /** @returns `null` on a Unix socket. Bun forgets it when the response is sent or the client has disconnected */
  const addressOf = (request: Request) => anyServer()?.requestIP(request)?.address ?? null;
  /** Requests whose response is made in a later turn of the event loop. Bun forgets those whose client disconnects. */
  const pending = new Set<Request>();
  return {
    addressOf,
    pending,
    pendingPorts: () => new Set([...pending].map((each) => anyServer()?.requestIP(each)?.port)),
    /** @returns whether the response to the request is not sent yet. Not known, and false, on a Unix socket */
    isUnsent: (request: Request) => addressOf(request) !== null,
    /** Keeps the connection of a request open for this time and the usual idle timeout. No effect on a Unix socket. */
    keepOpen(request: Request, seconds: number): void {
      anyServer()?.timeout(request, seconds + IDLE_TIMEOUT_S);
    },
    /** Waits for requests in flight: from the end of the header until the response is sent or, without a client, made. */
    async untilIdle(timeoutMs: number): Promise<void> {
      const deadlineMs = performance.now() + timeoutMs;
      let lastBusyMs = performance.now();
      while (servers.size + pending.size > 0) {
        const timeMs = performance.now();
        if (pending.size > 0 || [...servers].some((each) => each.pendingRequests > 0))
          lastBusyMs = timeMs;
        const waitMs = Math.min(POLL_MS, deadlineMs - timeMs, lastBusyMs + IDLE_MS - timeMs);
        if (waitMs <= 0) return;
        await Bun.sleep(waitMs);
      }
    },
  };
}
