import { createFairQueue, type RunFairly } from "../../base/fair-queue.ts";
import type { Database } from "../server/connection.ts";
import { QUEUE_TIMEOUT_MS } from "../server/connection-queues.ts";
import type { Placement } from "../server/placement.ts";

/** Batches of writes of one table that run at the same time. Further writes wait and share a statement. */
export const MAX_WRITE_BATCHES = 3;

export interface StoreContext {
  readonly db: Database;
  readonly placement: Placement;
  readonly now: () => Date;
  /** Runs a write that may wait for a locked row: one at a time for each row. */
  readonly runForRow: RunFairly;
  readonly pendingWrites: { count: number };
}

export function createContext(parts: Pick<StoreContext, "db" | "placement" | "now">): StoreContext {
  return {
    ...parts,
    runForRow: createFairQueue({
      // It leaves connections to batches.
      maxRunning: Math.max(1, parts.db.shares.write - MAX_WRITE_BATCHES),
      maxRunningOfClient: 1,
      queueTimeoutMs: QUEUE_TIMEOUT_MS,
      problem: "the database is busy",
    }),
    pendingWrites: { count: 0 },
  };
}
