/** Clients that wait for changes. Their number is bounded, and a client that waits uses nothing of the database. */
import type { ChangeStore } from "../../domain/change.ts";
import type { ClientId } from "../../domain/token.ts";
import type { Drain } from "./drain.ts";
import { createShares } from "./memory.ts";

const MAX_WAITING = 1024;

/** A client that waits. Disposing of it frees its place. */
interface WaitingClient extends Disposable {
  /**
   * Resolves when there may be a change that was not there when the client began to wait, or at the last call.
   * @returns false if the client should wait no longer: its time is over, it has disconnected, or the server is shutting
   * down
   */
  next(): Promise<boolean>;
}

export interface WaitingClients {
  /**
   * @param client that waits
   * @param signal aborts when the client disconnects
   * @throws {AppError} unavailable if the places are taken, or half of them by this client
   */
  begin(client: ClientId, seconds: number, signal: AbortSignal): WaitingClient;
  count(): number;
}

export function createWaitingClients(
  changes: Pick<ChangeStore, "subscribe">,
  drain: Pick<Drain, "signal">,
): WaitingClients {
  const places = createShares(MAX_WAITING, "too many clients wait for changes");
  return {
    begin(client, seconds, signal) {
      const release = places.reserve(client, 1);
      let wake = Promise.withResolvers<void>();
      const subscription = changes.subscribe(() => wake.resolve());
      let isOver = false;
      const end = () => {
        isOver = true;
        wake.resolve();
      };
      const timer = setTimeout(end, seconds * 1000);
      const signals = [signal, drain.signal];
      for (const each of signals) each.addEventListener("abort", end);
      if (signals.some(({ aborted }) => aborted)) end();
      return {
        async next() {
          await wake.promise;
          wake = Promise.withResolvers();
          return !isOver;
        },
        [Symbol.dispose]() {
          clearTimeout(timer);
          for (const each of signals) each.removeEventListener("abort", end);
          subscription[Symbol.dispose]();
          release();
        },
      };
    },
    count: places.total,
  };
}
