/**
 * Clients take turns while the event loop is busy. Bun hands over all requests that have arrived in one turn of the loop:
 * those of a client with hundreds of connections would delay all others until the last of them is handled.
 */

import { endTurn } from "../end-turn.ts";

/** Time after which new requests wait, and after which the next turn begins. */
const MAX_TURN_MS = 2;

export interface ClientTurns {
  /**
   * @param client who sends the request; those without a token are one client
   * @returns `null` if the request can be handled at once; otherwise, a promise of the turn of its client. Requests of one
   * client are handled in their order
   */
  readonly wait: (client: string | null) => Promise<void> | null;
}

export function createClientTurns(nowMs = () => performance.now()): ClientTurns {
  /** The requests that wait, by client. The first client is the next one. */
  const waiting = new Map<string | null, Set<() => void>>();
  let turnStartedMs = Number.NEGATIVE_INFINITY;
  /** Whether the start of each turn is known. A timer for each turn would cost more. */
  let isFollowing = false;

  const isOver = (timeMs: number) => timeMs - turnStartedMs >= MAX_TURN_MS;

  function handleNext(): void {
    const [first] = waiting;
    if (first === undefined) return;
    const [client, requests] = first;
    const [begin] = requests;
    if (begin !== undefined) requests.delete(begin);
    waiting.delete(client);
    if (requests.size > 0) waiting.set(client, requests);
    begin?.();
  }

  async function followTurns(): Promise<void> {
    isFollowing = true;
    do {
      await endTurn();
      turnStartedMs = nowMs();
      while (waiting.size > 0 && !isOver(nowMs())) {
        handleNext();
        // The request is handled before this continues.
        await Promise.resolve();
      }
      // Of requests that arrive now.
      turnStartedMs = nowMs();
    } while (waiting.size > 0);
    isFollowing = false;
  }

  function mustWait(client: string | null): boolean {
    if (waiting.size > 0 && waiting.has(client)) return true;
    const timeMs = nowMs();
    if (!isOver(timeMs)) return false;
    if (isFollowing) return true;
    // Turns may have ended since then, unnoticed.
    turnStartedMs = timeMs;
    void followTurns();
    return false;
  }

  return {
    wait(client) {
      if (!mustWait(client)) return null;
      return new Promise((resolve) => {
        const requests = waiting.get(client) ?? new Set();
        requests.add(resolve);
        waiting.set(client, requests);
      });
    },
  };
}
