import type { Database } from "bun:sqlite";
import { fail } from "../../base/error.ts";

const POLL_MS = 50;

export type ChangeWatch = ReturnType<typeof createChangeWatch>;

/**
 * Tells listeners of new changes. Other processes write to the database too, so the newest id is also polled while there
 * are listeners.
 * @param untilArchived waits until the archive has all that is committed; it may reject, and is asked again then. `null`
 * shows changes that the archive does not have. Otherwise another server that takes over might not have them, and count
 * anew from an earlier one
 */
export function createChangeWatch(db: Database, untilArchived: (() => Promise<void>) | null) {
  const newestId = db.prepare<{ id: number }, []>("select coalesce(max(id), 0) as id from changes");
  const listeners = new Set<() => void>();
  let timer: Timer | undefined;
  let seen = -1;
  /** The newest id that may be shown; -1 until that is known. */
  let shown = -1;

  function show(id: number): void {
    shown = Math.max(shown, id);
    for (const listener of [...listeners]) listener();
  }

  function check(): void {
    if (listeners.size === 0 && untilArchived === null) return;
    try {
      const { id = 0 } = newestId.get() ?? {};
      if (id === seen) return;
      seen = id;
    } catch {
      // The disk is failing, or another process has locked the database. The next check finds what this one missed.
      return;
    }
    const id = seen;
    const again = () => {
      seen = -1;
    };
    if (untilArchived === null) show(id);
    else untilArchived().then(() => show(id), again);
  }

  return {
    /** Calls the listeners if there are new changes. Call it after each commit. */
    check,
    /** @param last the newest id. @throws {AppError} unavailable if the newest one that may be shown is not known */
    shownOf(last: number): number {
      if (untilArchived === null) return last;
      if (last > shown) check();
      if (shown === -1) fail("unavailable", "the archive does not respond");
      return Math.min(last, shown);
    },
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
