/** A queue in which no client keeps the others waiting. */
import { AppError, fail } from "./error.ts";

/**
 * Starts the next task of the client with the fewest running tasks; among several, of the one whose last task ended
 * longest ago. So a client has more than its share only while no other waits.
 * @throws {AppError} unavailable if too many tasks are waiting, or this one waits for too long
 */
export type RunFairly = <Result>(client: string, task: () => Promise<Result>) => Promise<Result>;

export interface FairQueueOptions {
  /** Maximum number of tasks that run at the same time. */
  readonly maxRunning: number;
  /** How many of them one client can have. By default, if there are several, it leaves one to others. */
  readonly maxRunningOfClient?: number;
  /** Maximum number of tasks that wait, half of them of one client. The default is no maximum. */
  readonly maxWaiting?: number;
  readonly queueTimeoutMs: number;
  /** Message of the error. */
  readonly problem: string;
}

interface Client {
  readonly waiting: Set<() => void>;
  running: number;
}

function hasTasks({ running, waiting }: Client): boolean {
  return running > 0 || waiting.size > 0;
}

export function createFairQueue({
  maxRunning,
  // The next client need not wait for the end of a long task.
  maxRunningOfClient = Math.max(1, maxRunning - 1),
  maxWaiting = Number.POSITIVE_INFINITY,
  queueTimeoutMs,
  problem,
}: FairQueueOptions): RunFairly {
  /** Those with tasks, in the order in which they came or last ended one. */
  const clients = new Map<string, Client>();
  let running = 0;
  let waiting = 0;

  function start(client: Client): void {
    client.running += 1;
    running += 1;
  }

  function startNext(): void {
    let next: Client | null = null;
    for (const client of clients.values()) {
      const leastRunning = next?.running ?? maxRunningOfClient;
      if (client.waiting.size > 0 && client.running < leastRunning) next = client;
    }
    if (next === null) return;
    start(next);
    const [begin] = next.waiting;
    begin?.();
  }

  function end(name: string, client: Client): void {
    client.running -= 1;
    running -= 1;
    clients.delete(name);
    if (hasTasks(client)) clients.set(name, client);
    startNext();
  }

  async function waitToBegin(name: string, client: Client): Promise<void> {
    if (waiting >= maxWaiting || client.waiting.size >= maxWaiting / 2) {
      fail("unavailable", problem);
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const timer = setTimeout(() => {
      leave();
      if (!hasTasks(client)) clients.delete(name);
      reject(new AppError("unavailable", problem));
    }, queueTimeoutMs);
    function leave(): void {
      client.waiting.delete(begin);
      waiting -= 1;
    }
    function begin(): void {
      clearTimeout(timer);
      leave();
      resolve();
    }
    client.waiting.add(begin);
    waiting += 1;
    clients.set(name, client);
    await promise;
  }

  return async (name, task) => {
    const client = clients.get(name) ?? { waiting: new Set(), running: 0 };
    if (running < maxRunning && client.running < maxRunningOfClient) {
      start(client);
      clients.set(name, client);
    } else {
      await waitToBegin(name, client);
    }
    try {
      return await task();
    } finally {
      end(name, client);
    }
  };
}
