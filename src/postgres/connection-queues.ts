/**
 * Limits concurrency to the size of the pool. Bun.SQL pipelines a query behind a busy connection even while others are
 * idle, so a slow statement would delay fast ones. Each kind of work has a queue, first in, first out.
 */
import { AppError } from "../error.ts";

/**
 * - `read`: one record, or a few that are found by their keys
 * - `list`: a page, which can take much longer
 * - `write`: of requests and of commands
 * - `background`: what the process does by itself, whether it reads or writes
 */
export type Kind = "read" | "list" | "write" | "background";

/** How long work waits for a connection before it is rejected. */
export const QUEUE_TIMEOUT_MS = 5_000;
/**
 * Default timeout of work. It must exceed the statement timeout, so that only an unresponsive server reaches it, or one
 * on which each of several statements almost times out.
 */
const WORK_TIMEOUT_MS = 10_000;

/** @returns how many connections of a pool each kind has at most. All but reads leave one to reads */
function sharesOf(connections: number): Readonly<Record<Kind, number>> {
  return {
    read: connections,
    list: Math.max(1, Math.floor(connections / 2)),
    // All writes may wait for one lock.
    write: Math.max(1, connections - Math.ceil(connections / 5)),
    background: 1,
  };
}

interface Waiting {
  readonly start: () => void;
  readonly since: number;
}

interface Queue {
  readonly max: number;
  readonly waiting: Waiting[];
  running: number;
}

/**
 * Waits for work, which goes on after the timeout.
 * @throws {AppError} unavailable if it times out; the outcome of the work is then unknown
 */
function withTimeout<Result>(
  work: Promise<Result>,
  timeoutMs: number,
  onTimeout: () => void,
): Promise<Result> {
  const { promise, resolve, reject } = Promise.withResolvers<Result>();
  const timer = setTimeout(() => {
    reject(new AppError("unavailable", "the database does not respond"));
    onTimeout();
  }, timeoutMs);
  work.then(resolve, reject).finally(() => clearTimeout(timer));
  return promise;
}

interface ConnectionQueuesOptions {
  /** Connections in the pool. */
  readonly connections: number;
  readonly queueTimeoutMs?: number;
  /** Called with work that has timed out. */
  readonly onTimeout?: (work: Promise<unknown>) => void;
}

export type ConnectionQueues = ReturnType<typeof createConnectionQueues>;

export function createConnectionQueues({
  connections,
  queueTimeoutMs = QUEUE_TIMEOUT_MS,
  onTimeout,
}: ConnectionQueuesOptions) {
  const shares = sharesOf(connections);
  const createQueue = (kind: Kind): Queue => ({ max: shares[kind], waiting: [], running: 0 });
  const queues: Readonly<Record<Kind, Queue>> = {
    read: createQueue("read"),
    list: createQueue("list"),
    write: createQueue("write"),
    background: createQueue("background"),
  };
  const all = Object.values(queues);
  const idleWaiters: (() => void)[] = [];
  let arrivals = 0;
  let running = 0;

  function canStart(queue: Queue): boolean {
    if (running >= connections || queue.running >= queue.max) return false;
    return queue === queues.read || running - queues.read.running < Math.max(1, connections - 1);
  }

  function acquire(queue: Queue): Promise<void> {
    if (queue.waiting.length === 0 && canStart(queue)) {
      queue.running += 1;
      running += 1;
      return Promise.resolve();
    }
    return new Promise((resolve, reject) => {
      arrivals += 1;
      const waiting = {
        since: arrivals,
        start() {
          clearTimeout(timer);
          resolve();
        },
      };
      const timer = setTimeout(() => {
        queue.waiting.splice(queue.waiting.indexOf(waiting), 1);
        reject(new AppError("unavailable", "the database is busy"));
      }, queueTimeoutMs);
      queue.waiting.push(waiting);
    });
  }

  /** @returns the queue of the work that has waited longest, among those that can start */
  function nextQueue(): Queue | undefined {
    const sinceOf = ({ waiting }: Queue) => waiting[0]?.since ?? Number.POSITIVE_INFINITY;
    return all
      .filter((queue) => queue.waiting.length > 0 && canStart(queue))
      .sort((one, other) => sinceOf(one) - sinceOf(other))[0];
  }

  function release(queue: Queue): void {
    queue.running -= 1;
    running -= 1;
    const next = nextQueue();
    if (next !== undefined) {
      next.running += 1;
      running += 1;
      next.waiting.shift()?.start();
    } else if (running === 0) {
      for (const wake of idleWaiters.splice(0)) wake();
    }
  }

  return {
    /**
     * Runs work as soon as a connection is free for its kind.
     * @param timeoutMs timeout from the start of the work; after it, the connection counts as busy until the work ends
     * @throws {AppError} unavailable if no connection becomes free, or the work times out
     */
    async run<Result>(
      kind: Kind,
      work: () => Promise<Result>,
      timeoutMs = WORK_TIMEOUT_MS,
    ): Promise<Result> {
      const queue = queues[kind];
      await acquire(queue);
      const result = work();
      const end = () => release(queue);
      result.then(end, end);
      return timeoutMs === Number.POSITIVE_INFINITY
        ? result
        : withTimeout(result, timeoutMs, () => onTimeout?.(result));
    },
    /** How much work of each kind can run at the same time. */
    shares,
    /** Resolves when no work runs or waits. */
    idle(): Promise<void> {
      if (running === 0) return Promise.resolve();
      return new Promise((wake) => idleWaiters.push(wake));
    },
  };
}
