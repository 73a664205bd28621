import type { LargePages } from "../large-page.ts";
import type { RunInOrder } from "./batch.ts";
import type { Database } from "./connection.ts";
import { createLockedQueue } from "./row-locks.ts";
import { createUpdateQueue, type RunUpdate } from "./updates.ts";

/** What the stores of a database share. */
export interface StoreContext {
  readonly db: Database;
  readonly largePages: LargePages;
  /** Runs a write that waits for a locked row. One at a time waits for each row. */
  readonly runLocked: RunInOrder;
  readonly runUpdate: RunUpdate;
  readonly now: () => Date;
}

export function createContext(
  parts: Pick<StoreContext, "db" | "largePages" | "now">,
): StoreContext {
  const runLocked = createLockedQueue();
  return { ...parts, runLocked, runUpdate: createUpdateQueue(parts.db, runLocked) };
}
