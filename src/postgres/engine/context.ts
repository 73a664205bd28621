import type { Database } from "../server/connection.ts";
import type { Placement } from "../server/placement.ts";
import { createRowQueue, type RunForRow } from "./row-queue.ts";

/** Batches of writes of one table that run at the same time. Further writes wait and share a statement. */
export const MAX_WRITE_BATCHES = 3;

export interface StoreContext {
  readonly db: Database;
  readonly placement: Placement;
  readonly now: () => Date;
  /** Runs a write that may wait for a locked row: one at a time for each row. */
  readonly runForRow: RunForRow;
  readonly pendingWrites: { count: number };
}

export function createContext(parts: Pick<StoreContext, "db" | "placement" | "now">): StoreContext {
  return {
    ...parts,
    // It leaves connections to batches.
    runForRow: createRowQueue(Math.max(1, parts.db.shares.write - MAX_WRITE_BATCHES)),
    pendingWrites: { count: 0 },
  };
}
