/** Clients that wait for changes. Their number is bounded, and a client that waits uses nothing of the database. */
import { yieldToEventLoop } from "../../base/event-loop.ts";
import type { MaybePromise } from "../../base/maybe-promise.ts";
import { createRoundRobinQueue } from "../../base/round-robin-queue.ts";
import type { ChangeStore } from "../../domain/change.ts";
import type { ClientId } from "../../domain/token.ts";
import type { Drain } from "../connections/drain.ts";
import { createShares } from "./memory.ts";
import { MAX_TURN_MS } from "./yielding.ts";

const MAX_WAITING = 1024;
/** Pages that are kept for other clients, although they may be sent and thus not counted any more. */
const MAX_SHARED = 4;

export function createWaitingClients(
  subscribe: ChangeStore["subscribe"],
  drain: Pick<Drain, "signal">,
  nowMs = () => performance.now(),
) {
  const places = createShares(MAX_WAITING, "too many clients wait for changes");
  const turns = createRoundRobinQueue<() => void>();
  let lastTurn = Promise.resolve();
  let turnStartedMs = 0;
  const shared = new Map<string, Promise<unknown>>();

  const takeTurn = () => turns.take()?.();
  /** Bun sends a response in the turn in which it is made, which takes 1 ms for a page of 4 MB. */
  const hasTime = () => nowMs() - turnStartedMs < MAX_TURN_MS;

  /** A change wakes all clients. One continues in each turn of the event loop, which it passes on if it makes no page. */
  function turnOf(client: ClientId): Promise<void> {
    lastTurn = lastTurn.then(yieldToEventLoop).then(() => {
      turnStartedMs = nowMs();
      takeTurn();
    });
    return new Promise((begin) => turns.add(client, begin));
  }

  return {
    /** @param signal aborts when the client disconnects. @throws {AppError} unavailable if there is no place for it */
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
         * @param check runs before the turn, so that clients whose check takes long still share their page
         * @returns false if the client should wait no longer
         */
        async next(check: () => MaybePromise<unknown>): Promise<boolean> {
          await wake.promise;
          await check();
          if (isOver) return false;
          if (turns.size() === 0) shared.clear();
          await turnOf(client);
          wake = Promise.withResolvers();
          if (isOver && hasTime()) takeTurn();
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
    /** Clients that were woken together and wait for the same page share it, unless it is empty: others may get it. */
    async share<Page extends { readonly isEmpty: boolean }>(
      client: ClientId,
      key: string,
      make: () => Promise<Page>,
    ): Promise<Page> {
      const isLast = () => turns.size() === 0;
      for (let found = shared.get(key); found !== undefined; found = shared.get(key)) {
        if (Bun.peek.status(found) === "fulfilled" && hasTime()) {
          if (isLast()) shared.clear();
          else takeTurn();
          return found as Promise<Page>;
        }
        // Those that wait for it do not all continue in one turn.
        await found.catch(() => {});
        await turnOf(client);
      }
      if (isLast() || shared.size === MAX_SHARED) shared.clear();
      const page = make();
      if (isLast()) return page;
      shared.set(key, page);
      const forget = () => shared.get(key) === page && shared.delete(key);
      page.then(({ isEmpty }) => isEmpty && forget(), forget);
      return page;
    },
    count: places.total,
  };
}
