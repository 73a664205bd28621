import type { WaitingClients } from "./waiting-clients.ts";

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
  /** @returns how many requests have no complete response yet, without those that wait for changes */
  readonly unfinished: () => number;
  /** Keeps the connection of a request open for this time and the usual idle timeout, although nothing is sent. */
  readonly keepOpen: (request: Request, seconds: number) => void;
  /** Closes the connection of a request within a second, or as soon as its client stops reading. */
  readonly disconnect: (request: Request) => void;
}

export function connectionsOf(servers: Servers, waitingClients: WaitingClients): Connections {
  function setTimeoutOf(request: Request, seconds: number): void {
    // Bun does not need the server of the request.
    const [server] = servers;
    server?.timeout(request, seconds);
  }
  return {
    unfinished: () => countPending(servers) - waitingClients.count(),
    keepOpen: (request, seconds) => setTimeoutOf(request, seconds + IDLE_TIMEOUT_S),
    // The shortest idle timeout. Bun has no way to close a single connection.
    disconnect: (request) => setTimeoutOf(request, 1),
  };
}
