import { yieldToEventLoop } from "../../base/event-loop.ts";

/** Number of requests after which the count starts again in the next turn. A timer for each turn would cost more. */
const RESET_INTERVAL = 32;
/** A turn handles at least this many requests, and at most `RESET_INTERVAL` more, if `client-scheduler.ts` does. */
const MIN_REQUESTS = 64;

/**
 * Limits the requests that one turn of the event loop handles. Bun reads all that a connection has pipelined in one
 * turn, in which it serves no other connection. A request that waits for the next turn has an asynchronous response, and
 * Bun closes a connection that pipelines more behind such a request. Those of other connections are only handled later.
 * @returns a function that returns `null` if the request can be handled at once; otherwise, a promise of the next turn
 */
export function createTurnLimit() {
  let requests = 0;
  const reset = () => {
    requests = 0;
  };
  return (): Promise<void> | null => {
    requests += 1;
    if (requests === RESET_INTERVAL) setImmediate(reset);
    if (requests <= RESET_INTERVAL + MIN_REQUESTS) return null;
    return yieldToEventLoop();
  };
}
