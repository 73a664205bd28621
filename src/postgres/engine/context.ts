import type { Database } from "../server/connection.ts";
import type { Placement } from "../server/placement.ts";
import { createBatchQueue } from "./batch.ts";

/** Batches of writes of one table that run at the same time. Further writes wait and share a statement. */
export const MAX_WRITE_BATCHES = 3;

export interface StoreContext {
  readonly db: Database;
  readonly placement: Placement;
  readonly now: () => Date;
  /** Runs a write that may wait for a locked row: one at a time for each row. */
  readonly runForRow: <Result>(row: string, write: () => Promise<Result>) => Promise<Result>;
  readonly pendingWrites: { count: number };
}

export function createContext(parts: Pick<StoreContext, "db" | "placement" | "now">): StoreContext {
  const enqueue = createBatchQueue<{ row: string; write: () => Promise<unknown> }, unknown>({
    run: (writes) => Promise.all(writes.map(({ write }) => write())),
    maxItems: 1,
    // It leaves connections to batches.
    maxBatches: Math.max(1, parts.db.shares.write - MAX_WRITE_BATCHES),
    conflictKeysOf: ({ row }) => [row],
    clientOf: () => null,
  });
  return {
    ...parts,
    runForRow: (row, write) => enqueue({ row, write }) as Promise<never>,
    pendingWrites: { count: 0 },
  };
}
