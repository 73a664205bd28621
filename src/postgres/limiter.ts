/**
 * Limits concurrency to the size of the pool. Bun.SQL pipelines a query behind a busy connection even while
 * others are idle, so a slow statement would delay fast ones.
 */
import { AppError } from "../error.ts";

/** Writes leave one connection in this many, rounded up, to reads: all writes may wait for one lock. */
const READ_SHARE = 5;
/** Lists take at most one connection in this many: a list can take much longer than a read of one record. */
const LIST_SHARE = 2;
/**
 * Maximum number of reads, and of lists, that run or wait; further ones are rejected. One client has half of each. The
 * server bounds writes before it reads their bodies, and commands make one at a time.
 */
const MAX_PENDING: Readonly<Record<Access, number>> = {
  read: 4096,
  list: 4096,
  write: Number.POSITIVE_INFINITY,
};
/** How long work waits for a connection before it is rejected. */
export const QUEUE_TIMEOUT_MS = 5_000;
/**
 * Default timeout of work. It must exceed the statement timeout, so that only an unresponsive server reaches it, or one
 * on which each of several statements almost times out.
 */
const WORK_TIMEOUT_MS = 10_000;

/** A read is of one record, or of a few that are found by their keys. */
export type Access = "read" | "list" | "write";

export interface Limiter {
  /**
   * Runs work that counts as a pending read, list or write until it ends. It waits for no connection.
   * @param client who has at most half of the places; by default they are not divided
   * @throws {AppError} unavailable if too many reads or lists are pending
   */
  admit<Result>(access: Access, work: () => Promise<Result>, client?: string): Promise<Result>;
  /**
   * Runs admitted work as soon as a connection is free.
   * @param timeoutMs timeout from the start of the work; after it, the connection counts as busy until the work ends
   * @throws {AppError} unavailable if no connection becomes free, or the work times out
   */
  run<Result>(access: Access, work: () => Promise<Result>, timeoutMs?: number): Promise<Result>;
  /** Maximum number of writes that run at the same time. */
  readonly writeConnections: number;
  /** Maximum number of lists that run at the same time. */
  readonly listConnections: number;
  /** Number of admitted writes that have not ended. */
  pendingWrites(): number;
  /** Resolves when no work runs or waits. */
  idle(): Promise<void>;
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

function sumOf({ read, list, write }: Readonly<Record<Access, number>>): number {
  return read + list + write;
}

interface LimiterOptions {
  /** Connections in the pool. */
  readonly connections: number;
  readonly queueTimeoutMs?: number;
  /** Called with work that has timed out. */
  readonly onTimeout?: (work: Promise<unknown>) => void;
}

export function createLimiter({
  connections,
  queueTimeoutMs = QUEUE_TIMEOUT_MS,
  onTimeout,
}: LimiterOptions): Limiter {
  const queue: { readonly access: Access; readonly start: () => void }[] = [];
  const idleWaiters: (() => void)[] = [];
  const writeConnections = Math.max(1, connections - Math.ceil(connections / READ_SHARE));
  const listConnections = Math.max(1, Math.floor(connections / LIST_SHARE));
  const running = { read: 0, list: 0, write: 0 };
  const pending = { read: 0, list: 0, write: 0 };
  /** Pending work of each client that has some. */
  const pendingOf: Readonly<Record<Access, Map<string, number>>> = {
    read: new Map(),
    list: new Map(),
    write: new Map(),
  };

  function canStart(access: Access): boolean {
    if (sumOf(running) >= connections) return false;
    if (access === "read") return true;
    // Lists and writes together leave a connection to reads.
    if (running.list + running.write >= Math.max(1, connections - 1)) return false;
    return access === "list" ? running.list < listConnections : running.write < writeConnections;
  }

  function acquire(access: Access): Promise<void> {
    if (canStart(access)) {
      running[access] += 1;
      return Promise.resolve();
    }
    return new Promise((resolve, reject) => {
      const waiting = {
        access,
        start() {
          clearTimeout(timer);
          resolve();
        },
      };
      const timer = setTimeout(() => {
        queue.splice(queue.indexOf(waiting), 1);
        reject(new AppError("unavailable", "the database is busy"));
      }, queueTimeoutMs);
      queue.push(waiting);
    });
  }

  function release(access: Access): void {
    running[access] -= 1;
    const at = queue.findIndex((waiting) => canStart(waiting.access));
    const [next] = at === -1 ? [] : queue.splice(at, 1);
    if (next !== undefined) {
      running[next.access] += 1;
      next.start();
    } else {
      wakeIfIdle();
    }
  }

  function countPending(access: Access, client: string | undefined, change: 1 | -1): void {
    pending[access] += change;
    if (client === undefined) return;
    const ofClient = (pendingOf[access].get(client) ?? 0) + change;
    if (ofClient === 0) pendingOf[access].delete(client);
    else pendingOf[access].set(client, ofClient);
  }

  function isIdle(): boolean {
    return sumOf(running) + sumOf(pending) === 0;
  }

  function wakeIfIdle(): void {
    if (isIdle()) for (const wake of idleWaiters.splice(0)) wake();
  }

  return {
    writeConnections,
    listConnections,
    async admit(access, work, client) {
      const ofClient = client === undefined ? 0 : (pendingOf[access].get(client) ?? 0);
      if (pending[access] >= MAX_PENDING[access] || ofClient >= MAX_PENDING[access] / 2) {
        throw new AppError("unavailable", `too many ${access}s are waiting`);
      }
      countPending(access, client, 1);
      try {
        return await work();
      } finally {
        countPending(access, client, -1);
        wakeIfIdle();
      }
    },
    async run(access, work, timeoutMs = WORK_TIMEOUT_MS) {
      await acquire(access);
      const result = work();
      const end = () => release(access);
      result.then(end, end);
      return timeoutMs === Number.POSITIVE_INFINITY
        ? result
        : withTimeout(result, timeoutMs, () => onTimeout?.(result));
    },
    pendingWrites: () => pending.write,
    idle() {
      if (isIdle()) return Promise.resolve();
      return new Promise((wake) => idleWaiters.push(wake));
    },
  };
}
