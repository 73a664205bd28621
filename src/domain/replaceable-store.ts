/** The store of a server, which is replaced when a standby becomes the primary, or the primary a standby. */
import { fail } from "../base/error.ts";
import type { Store } from "./store.ts";

export type ReplaceableStore = ReturnType<typeof createReplaceableStore>;

export function createReplaceableStore() {
  let current: Store | null = null;
  /** For clients as well: without names, addresses and errors. */
  let waitsFor: string | null = null;
  /** Subscriptions of clients that wait for changes. They continue with the next store. */
  const subscriptions = new Map<() => void, Disposable | null>();
  /** @returns the store of the moment: get it for each request. @throws {AppError} unavailable if there is none */
  const use = () =>
    current ??
    fail("unavailable", `the server waits for ${waitsFor ?? "its role: standby or primary"}`);
  return {
    use,
    current: () => current,
    /** @returns what the server waits for, before it follows or writes; `null` if for nothing that is known */
    waitsFor: () => waitsFor,
    noteWaiting(what: string | null): void {
      waitsFor = what;
    },
    /** As `ChangeStore.subscribe`, also to the stores that replace this one. @throws {AppError} unavailable */
    subscribe(listener: () => void): Disposable {
      subscriptions.set(listener, use().changes.subscribe(listener));
      return {
        [Symbol.dispose]() {
          subscriptions.get(listener)?.[Symbol.dispose]();
          subscriptions.delete(listener);
        },
      };
    },
    /** @param next `null` rejects all requests until there is another one. @returns the previous store */
    replace(next: Store | null): Store | null {
      const previous = current;
      current = next;
      for (const [listener, subscription] of subscriptions) {
        subscription?.[Symbol.dispose]();
        subscriptions.set(listener, next?.changes.subscribe(listener) ?? null);
        listener();
      }
      return previous;
    },
  };
}
