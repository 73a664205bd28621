import { createFairQueue, type RunFairly } from "../fair-queue.ts";
import type { LargePages } from "../large-page.ts";
import type { Database } from "./connection.ts";
import { QUEUE_TIMEOUT_MS } from "./limiter.ts";

/** Maximum number of large records that are read at the same time, all but one of them for one client. */
const MAX_LARGE_READS = 3;
/** How many more wait, half of them of one client. */
const MAX_LARGE_WAITING = 4096;
/** Connections that writes which run alone leave to batches. */
const BATCH_CONNECTIONS = 3;

/** What the stores of a database share. */
export interface StoreContext {
  readonly db: Database;
  readonly largePages: LargePages;
  /**
   * Reads a large record apart from others. Few are read at the same time: Bun.SQL keeps all rows of a result, and many
   * requests can share a result.
   */
  readonly readLarge: RunFairly;
  /** Runs a write apart from others, because its row may be locked. One at a time runs for each row. */
  readonly runApart: RunFairly;
  readonly now: () => Date;
}

export function createContext(
  parts: Pick<StoreContext, "db" | "largePages" | "now">,
): StoreContext {
  return {
    ...parts,
    readLarge: createFairQueue({
      maxRunning: MAX_LARGE_READS,
      maxWaiting: MAX_LARGE_WAITING,
      queueTimeoutMs: QUEUE_TIMEOUT_MS,
      problem: "too many large records are being read",
    }),
    runApart: createFairQueue({
      maxRunning: Math.max(1, parts.db.limiter.writeConnections - BATCH_CONNECTIONS),
      maxRunningOfClient: 1,
      queueTimeoutMs: QUEUE_TIMEOUT_MS,
      problem: "the database is busy",
    }),
  };
}
