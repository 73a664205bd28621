/** A queue of the writes that may wait for a locked row: one at a time runs for each row, so that others are not held up. */
import { AppError } from "../../base/error.ts";
import { QUEUE_TIMEOUT_MS } from "../server/connection-queues.ts";

/** @throws {AppError} unavailable if the write waits for too long */
export type RunForRow = <Result>(row: string, write: () => Promise<Result>) => Promise<Result>;

/** @param maxRunning number of writes that run at the same time */
export function createRowQueue(maxRunning: number, queueTimeoutMs = QUEUE_TIMEOUT_MS): RunForRow {
  const running = new Set<string>();
  /** In the order of their arrival. */
  const waiting = new Set<{ readonly row: string; readonly start: () => void }>();

  const canStart = (row: string) => running.size < maxRunning && !running.has(row);

  async function waitToStart(row: string): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const entry = { row, start: resolve };
    waiting.add(entry);
    const timer = setTimeout(() => {
      waiting.delete(entry);
      reject(new AppError("unavailable", "the database is busy"));
    }, queueTimeoutMs);
    await promise;
    clearTimeout(timer);
  }

  function end(row: string): void {
    running.delete(row);
    const next = waiting.values().find((entry) => canStart(entry.row));
    if (next === undefined) return;
    waiting.delete(next);
    running.add(next.row);
    next.start();
  }

  return async (row, write) => {
    // If it can start, none waits that can: each end starts the first that can.
    if (canStart(row)) running.add(row);
    else await waitToStart(row);
    try {
      return await write();
    } finally {
      end(row);
    }
  };
}
