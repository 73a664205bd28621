/** Idle timeout of a connection. */
export const IDLE_TIMEOUT_S = 30;

/** All servers of Bun that still have connections. There are several after the certificate was reloaded. */
export type Servers = Set<Bun.Server<unknown>>;

/** @returns how many requests have no complete response yet */
export function countPending(servers: Servers): number {
  let requests = 0;
  for (const { pendingRequests } of servers) requests += pendingRequests;
  return requests;
}

/** The connections of all clients. */
export interface Connections {
  /** @returns whether the response to the request is not sent yet. Not known, and false, on a Unix socket */
  readonly isUnsent: (request: Request) => boolean;
  /** Keeps the connection of a request open for this time and the usual idle timeout, although nothing is sent. */
  readonly keepOpen: (request: Request, seconds: number) => void;
}

export function connectionsOf(servers: Servers): Connections {
  // Bun does not need the server of the request.
  const anyServer = () => [...servers][0];
  return {
    // Bun forgets the request, and so its address, when the response is sent or the client has disconnected.
    isUnsent: (request) => (anyServer()?.requestIP(request) ?? null) !== null,
    keepOpen: (request, seconds) => anyServer()?.timeout(request, seconds + IDLE_TIMEOUT_S),
  };
}
