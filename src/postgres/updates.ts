/** Updates and deletes of single records. Those that wait for a locked row do not hold up the others: they run apart. */
import { createBatchQueue, itemAt, type RunInOrder } from "./batch.ts";
import type { Database, RunOptions, Session } from "./connection.ts";
import { isRowLockTimeout } from "./errors.ts";
import type { LockWait } from "./row-locks.ts";

/** Number of connections that updates leave to creates: two of them may wait for locked rows. */
const CREATE_CONNECTIONS = 3;

/** The statements of an update. @param wait if it is `brief` and a row is locked, the update runs again */
export type UpdateWork<Result> = (session: Session, wait: LockWait) => Promise<Result>;

/**
 * Runs an update, after the earlier ones of the same record.
 * @param record e.g. `users 1`
 */
export type RunUpdate = <Result>(
  record: string,
  work: UpdateWork<Result>,
  options?: Pick<RunOptions, "transaction">,
) => Promise<Result>;

interface PendingUpdate {
  readonly record: string;
  readonly run: (wait: LockWait) => Promise<unknown>;
}

/** @param runLocked runs an update that waits for a locked row */
export function createUpdateQueue(
  { layout, limiter, run }: Database,
  runLocked: RunInOrder,
): RunUpdate {
  // The timeout of a brief wait would not reach the other servers of Citus.
  const firstWait = layout === "citus" ? "long" : "brief";

  async function runUnlocked(updates: readonly PendingUpdate[]) {
    const update = itemAt(updates, 0);
    try {
      return [await update.run(firstWait)];
    } catch (error) {
      if (firstWait === "long" || !isRowLockTimeout(error)) throw error;
      return [runLocked(update.record, () => update.run("long"))];
    }
  }

  const enqueue = createBatchQueue({
    run: runUnlocked,
    maxItems: 1,
    maxBatches: Math.max(1, limiter.writeConnections - CREATE_CONNECTIONS),
    conflictKeysOf: ({ record }) => [record],
  });

  return <Result>(
    record: string,
    work: UpdateWork<Result>,
    options: Pick<RunOptions, "transaction"> = {},
  ) => {
    const runWork = (wait: LockWait) =>
      run("write", (session) => work(session, wait), { ...options, admitted: 1 });
    return limiter.admit("write", () => enqueue({ record, run: runWork })) as Promise<Result>;
  };
}
