export const IDLE_TIMEOUT_S = 30;

/** All servers of Bun that still have connections. There are several after the certificate was reloaded. */
export type Servers = Set<Bun.Server<unknown>>;

export type Connections = ReturnType<typeof connectionsOf>;

export function connectionsOf(servers: Servers) {
  // Bun does not need the server of the request.
  const anyServer = () => [...servers][0];
  /** @returns `null` on a Unix socket. Bun forgets it when the response is sent or the client has disconnected */
  const addressOf = (request: Request) => anyServer()?.requestIP(request)?.address ?? null;
  /** Requests whose response is not made in the same turn of the event loop. */
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
  };
}
