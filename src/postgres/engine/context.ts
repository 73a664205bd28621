import type { Database } from "../server/connection.ts";
import type { Placement } from "../server/placement.ts";
import { createBatchQueue } from "./batch.ts";

/** Batches of writes of one table that run at the same time. Further writes wait and share a statement. */
export const MAX_WRITE_BATCHES = 3;

export type StoreContext = ReturnType<typeof createContext>;

export function createContext(db: Database, placement: Placement, now: () => Date) {
  const enqueue = createBatchQueue<{ row: string; write: () => Promise<unknown> }, unknown>({
    run: (writes) => Promise.all(writes.map(({ write }) => write())),
    maxItems: 1,
    // It leaves connections to batches.
    maxBatches: Math.max(1, db.shares.write - MAX_WRITE_BATCHES),
    conflictKeysOf: ({ row }) => [row],
    clientOf: () => null,
  });
  return {
    ...{ db, placement, now },
    /** Runs a write that may wait for a locked row: one at a time for each row. */
    runForRow: <Result>(row: string, write: () => Promise<Result>) =>
      enqueue({ row, write }) as Promise<Result>,
    pendingWrites: { count: 0 },
  };
}
