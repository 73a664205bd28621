/** Changes of single records. Those that wait for a locked row do not hold up the others: they run apart. */
import { createBatchQueue, itemAt, type RunInOrder } from "./batch.ts";
import type { Database, RunOptions, Session } from "./connection.ts";
import { isRowLockTimeout } from "./errors.ts";
import type { LockWait } from "./row-locks.ts";

/** Number of connections that changes leave to creates: two of them may wait for locked rows. */
const CREATE_CONNECTIONS = 3;

/** The statements of a change. @param wait if it is `brief` and a row is locked, the change runs again */
export type ChangeWork<Result> = (session: Session, wait: LockWait) => Promise<Result>;

/**
 * Runs a change, after the earlier ones of the same record.
 * @param record e.g. `users 1`
 */
export type Change = <Result>(
  record: string,
  work: ChangeWork<Result>,
  options?: Pick<RunOptions, "transaction">,
) => Promise<Result>;

interface PendingChange {
  readonly record: string;
  readonly run: (wait: LockWait) => Promise<unknown>;
}

/** @param runLocked runs a change that waits for a locked row */
export function createChange({ layout, limiter, run }: Database, runLocked: RunInOrder): Change {
  // The timeout of a brief wait would not reach the other servers of Citus.
  const firstWait = layout === "citus" ? "long" : "brief";

  async function runUnlocked(changes: readonly PendingChange[]) {
    const change = itemAt(changes, 0);
    try {
      return [await change.run(firstWait)];
    } catch (error) {
      if (firstWait === "long" || !isRowLockTimeout(error)) throw error;
      return [runLocked(change.record, () => change.run("long"))];
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
    work: ChangeWork<Result>,
    options: Pick<RunOptions, "transaction"> = {},
  ) => {
    const runWork = (wait: LockWait) =>
      run("write", (session) => work(session, wait), { ...options, admitted: 1 });
    return limiter.admit("write", () => enqueue({ record, run: runWork })) as Promise<Result>;
  };
}
