/** A store whose place others take while a server runs: a standby becomes the primary. */
import { fail } from "../base/error.ts";
import type { Store } from "./store.ts";

export interface ReplaceableStore {
  /** Passes everything on to the store of the moment. Get its parts for each request. */
  readonly store: Store;
  /** @param next `null` rejects all requests until there is another one */
  replace(next: Store | null): void;
}

export function createReplaceableStore(): ReplaceableStore {
  let current: Store | null = null;
  /** Those of clients that wait for changes: they go on with the next store. */
  const subscriptions = new Map<() => void, Disposable | null>();
  /** @throws {AppError} unavailable */
  const use = () =>
    current ?? fail("unavailable", "the server is becoming a standby or the primary");

  function subscribe(listener: () => void): Disposable {
    subscriptions.set(listener, use().changes.subscribe(listener));
    return {
      [Symbol.dispose]() {
        subscriptions.get(listener)?.[Symbol.dispose]();
        subscriptions.delete(listener);
      },
    };
  }

  return {
    replace(next) {
      current = next;
      for (const [listener, subscription] of subscriptions) {
        subscription?.[Symbol.dispose]();
        subscriptions.set(listener, next?.changes.subscribe(listener) ?? null);
        listener();
      }
    },
    store: {
      get users() {
        return use().users;
      },
      get orders() {
        return use().orders;
      },
      get tokens() {
        return use().tokens;
      },
      get changes() {
        return { ...use().changes, subscribe };
      },
      get bulk() {
        return use().bulk;
      },
      checkUsable: async () => use().checkUsable(),
      statistics: async () => use().statistics(),
      archive: () => current?.archive() ?? null,
      isPrimary: () => current?.isPrimary() ?? false,
      secondsBehind: () => current?.secondsBehind() ?? null,
      withCopySource: (work) => use().withCopySource(work),
      check: () => use().check(),
      deleteExpiredKeys: (signal) => use().deleteExpiredKeys(signal),
      replaceResults: (user) => use().replaceResults(user),
      close: async () => current?.close(),
    },
  };
}
