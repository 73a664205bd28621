/** Lists on a database server take their turn by client, so that nobody waits for all pages of others. */
import { createFairQueue } from "../fair-queue.ts";
import type { Maybe } from "../maybe.ts";
import type { Store } from "../store.ts";

/** How long a list waits before it is rejected. */
const QUEUE_TIMEOUT_MS = 5_000;
/** Maximum number of lists that wait, half of them of one client. */
const MAX_WAITING = 4096;

/**
 * Reads a page as soon as it is the turn of the client.
 * @throws {AppError} unavailable if too many lists are waiting, or this one waits for too long
 */
export type ReadList = <Page>(client: string, read: () => Maybe<Page>) => Maybe<Page>;

export function createListQueue({ maxLists }: Store): ReadList {
  if (maxLists === null) return (_client, read) => read();
  const runFairly = createFairQueue({
    maxRunning: maxLists,
    maxWaiting: MAX_WAITING,
    queueTimeoutMs: QUEUE_TIMEOUT_MS,
    problem: "too many lists are waiting",
  });
  return (client, read) => runFairly(client, async () => read());
}
