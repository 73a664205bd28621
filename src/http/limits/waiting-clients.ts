/** Clients that wait for changes. Their number is bounded, and a client that waits uses nothing of the database. */
import type { ChangeStore } from "../../domain/change.ts";
import type { ClientId } from "../../domain/token.ts";
import type { Drain } from "./drain.ts";
import { createShares } from "./memory.ts";

const MAX_WAITING = 1024;

export type WaitingClients = ReturnType<typeof createWaitingClients>;

export function createWaitingClients(
  subscribe: ChangeStore["subscribe"],
  drain: Pick<Drain, "signal">,
) {
  const places = createShares(MAX_WAITING, "too many clients wait for changes");
  return {
    /**
     * @param client that waits
     * @param signal aborts when the client disconnects
     * @returns the place of the client, which disposing of it frees
     * @throws {AppError} unavailable if the places are taken, or half of them by this client
     */
    begin(client: ClientId, seconds: number, signal: AbortSignal) {
      const release = places.reserve(client, 1);
      let wake = Promise.withResolvers<void>();
      const subscription = subscribe(() => wake.resolve());
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
        /**
         * Resolves when there may be a change that was not there when the client began to wait, or at the last call.
         * @returns false if the client should wait no longer: its time is over, it has disconnected, or the server is
         * shutting down
         */
        async next(): Promise<boolean> {
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
