import type { Database } from "bun:sqlite";

/** Interval at which changes by other processes are noticed. */
const POLL_MS = 50;

export type ChangeWatch = ReturnType<typeof createChangeWatch>;

/**
 * Tells listeners of new changes. Other processes write to the database too, so the newest id is also polled while there
 * are listeners.
 */
export function createChangeWatch(db: Database) {
  const newestId = db.prepare<{ id: number }, []>("select coalesce(max(id), 0) as id from changes");
  const listeners = new Set<() => void>();
  let timer: Timer | undefined;
  let seen = 0;

  function check(): void {
    if (listeners.size === 0) return;
    try {
      const { id = 0 } = newestId.get() ?? {};
      if (id === seen) return;
      seen = id;
    } catch {
      // The disk is failing, or another process has locked the database. The next check finds what this one missed.
      return;
    }
    for (const listener of [...listeners]) listener();
  }

  return {
    /** Calls the listeners if there are new changes. Call it after each commit. */
    check,
    subscribe(listener: () => void): Disposable {
      listeners.add(listener);
      if (listeners.size === 1) timer = setInterval(check, POLL_MS);
      return {
        [Symbol.dispose]() {
          listeners.delete(listener);
          if (listeners.size === 0) clearInterval(timer);
        },
      };
    },
    [Symbol.dispose]: () => clearInterval(timer),
  };
}
