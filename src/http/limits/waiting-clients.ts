/**
 * Clients that wait for changes. The number of places is fixed, and a client that waits uses nothing of the database.
 * A change wakes them in several turns of the event loop, so that others are served in between.
 */

import { fail } from "../../base/error.ts";
import type { ChangeStore } from "../../domain/change.ts";
import type { ClientId } from "../../domain/token.ts";
import type { Drain } from "./drain.ts";

const MAX_WAITING = 1024;
/** Maximum number of clients that read changes in one turn of the event loop: their responses can be long. */
const MAX_WOKEN = 16;

/** A client that waits. Disposing of it frees its place. */
interface WaitingClient extends Disposable {
  /**
   * Resolves when there may be a change that was not there when the client began to wait, or at the last call.
   * @returns false if the client should wait no longer: its time is over, it has disconnected, its place is needed for
   * another client, or the server is shutting down
   */
  next(): Promise<boolean>;
}

export interface WaitingClients {
  /**
   * @param client that waits
   * @param signal aborts when the client disconnects
   * @throws {AppError} unavailable if the places are taken, and no other token has at least two more than this one
   */
  begin(client: ClientId, seconds: number, signal: AbortSignal): WaitingClient;
  count(): number;
}

type Place = ReturnType<typeof createPlace>;

function createPlace() {
  let isOver = false;
  let hasChange = false;
  /** Resolves the promise that the client waits for; `null` while it does not wait. */
  let resolve: (() => void) | null = null;
  return {
    /** Lets the client read at the next `wake`, or if it does not wait now. */
    noteChange() {
      hasChange = true;
    },
    wake: () => resolve?.(),
    end() {
      isOver = true;
      resolve?.();
    },
    /** @see WaitingClient.next */
    async next(): Promise<boolean> {
      if (!hasChange && !isOver) {
        await new Promise<void>((wake) => {
          resolve = wake;
        });
      }
      hasChange = false;
      resolve = null;
      return !isOver;
    },
  };
}

export function createWaitingClients(
  changes: Pick<ChangeStore, "subscribe">,
  drain: Pick<Drain, "isDraining" | "onStart">,
  maxWaiting = MAX_WAITING,
): WaitingClients {
  const placesOf = new Map<ClientId, Set<Place>>();
  let count = 0;
  let subscription: Disposable | null = null;
  const toWake = new Set<Place>();

  function* allPlaces() {
    for (const places of placesOf.values()) yield* places;
  }

  function wakeSome(): void {
    let woken = 0;
    for (const place of toWake) {
      if (woken === MAX_WOKEN) {
        setImmediate(wakeSome);
        return;
      }
      toWake.delete(place);
      place.wake();
      woken += 1;
    }
  }

  function wakeAll(): void {
    const isWaking = toWake.size > 0;
    for (const place of allPlaces()) {
      place.noteChange();
      toWake.add(place);
    }
    if (!isWaking) wakeSome();
  }

  /** Does nothing if it has been removed before. */
  function remove(client: ClientId, place: Place): void {
    const places = placesOf.get(client);
    if (places?.delete(place) !== true) return;
    count -= 1;
    if (places.size === 0) placesOf.delete(client);
  }

  /** If all places are taken, ends the oldest one of the token that has most of them. @throws {AppError} unavailable */
  function requirePlace(own: number): void {
    if (count < maxWaiting) return;
    let most = { client: "", places: new Set<Place>() };
    for (const [client, places] of placesOf) {
      if (places.size > most.places.size) most = { client, places };
    }
    const [oldest] = most.places;
    // With one place less, that token could take it back.
    if (oldest === undefined || most.places.size < own + 2) {
      fail("unavailable", "too many clients wait for changes");
    }
    remove(most.client, oldest);
    oldest.end();
  }

  drain.onStart(() => {
    for (const place of allPlaces()) place.end();
  });

  return {
    begin(client, seconds, signal) {
      requirePlace(placesOf.get(client)?.size ?? 0);
      const places = placesOf.get(client) ?? new Set();
      placesOf.set(client, places);
      const place = createPlace();
      if (drain.isDraining() || signal.aborted) place.end();
      places.add(place);
      count += 1;
      subscription ??= changes.subscribe(wakeAll);
      const timer = setTimeout(place.end, seconds * 1000);
      signal.addEventListener("abort", place.end);
      return {
        next: place.next,
        [Symbol.dispose]() {
          clearTimeout(timer);
          signal.removeEventListener("abort", place.end);
          remove(client, place);
          if (count > 0) return;
          subscription?.[Symbol.dispose]();
          subscription = null;
        },
      };
    },
    count: () => count,
  };
}
