import { yieldToEventLoop } from "../../base/event-loop.ts";
import { createRoundRobinQueue } from "../../base/round-robin-queue.ts";
import type { ClientId } from "../../domain/token.ts";

/** Time after which new requests wait, and after which the next turn begins. */
export const MAX_TURN_MS = 2;

/**
 * Serves clients round robin while the event loop is busy. Bun hands over all requests that have arrived in one turn of
 * the loop, also all that a connection has pipelined: those of a client with hundreds of connections would delay all
 * others until the last of them is handled. A request that waits has an asynchronous response, and Bun closes a
 * connection that pipelines more behind such a request.
 * @returns a function that returns `null` if a request can be handled now, and otherwise a promise that resolves when it
 * is the next one. Its client is `null` without a token. Requests of one client keep their order
 */
export function createYieldToClients(nowMs = () => performance.now()) {
  const waiting = createRoundRobinQueue<() => void>();
  let turnStartedMs = Number.NEGATIVE_INFINITY;
  /** Whether the start of each turn is known. A timer for each turn would cost more. */
  let isFollowing = false;

  const isOver = (timeMs: number) => timeMs - turnStartedMs >= MAX_TURN_MS;

  async function followTurns(): Promise<void> {
    isFollowing = true;
    do {
      await yieldToEventLoop();
      turnStartedMs = nowMs();
      while (waiting.size() > 0 && !isOver(nowMs())) {
        waiting.take()?.();
        // A GET is handled before this continues. A request with a body is handled later, so a turn can take longer.
        await Promise.resolve();
      }
      // For requests that arrive now, the turn begins here.
      turnStartedMs = nowMs();
    } while (waiting.size() > 0);
    isFollowing = false;
  }

  function mustWait(client: ClientId | null): boolean {
    if (waiting.has(client)) return true;
    const timeMs = nowMs();
    if (!isOver(timeMs)) return false;
    if (isFollowing) return true;
    // Turns may have ended since then, unnoticed.
    turnStartedMs = timeMs;
    void followTurns();
    return false;
  }

  return (client: ClientId | null): Promise<void> | null => {
    if (!mustWait(client)) return null;
    return new Promise((begin) => waiting.add(client, begin));
  };
}
