import { createFairQueue, type RunFairly } from "../fair-queue.ts";
import type { Database } from "./connection.ts";
import { QUEUE_TIMEOUT_MS } from "./limiter.ts";

/** Connections that writes which run alone leave to batches. */
const BATCH_CONNECTIONS = 3;

/** What the stores of a database share. */
export interface StoreContext {
  readonly db: Database;
  /** Runs a write apart from others, because its row may be locked. One at a time runs for each row. */
  readonly runApart: RunFairly;
  readonly now: () => Date;
}

export function createContext(parts: Pick<StoreContext, "db" | "now">): StoreContext {
  return {
    ...parts,
    runApart: createFairQueue({
      maxRunning: Math.max(1, parts.db.limiter.writeConnections - BATCH_CONNECTIONS),
      maxRunningOfClient: 1,
      queueTimeoutMs: QUEUE_TIMEOUT_MS,
      problem: "the database is busy",
    }),
  };
}
