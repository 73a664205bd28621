/**
 * As many pieces of work at once as there are connections. More would be sent behind another's on one
 * connection, and wait for it for as long as it runs, while other connections have nothing to do.
 */
import { AppError } from "../error.ts";

/** Of the places, the part that writes leave to reads: all writes may wait for one lock. */
const READ_SHARE = 5;
/** Reads that wait at most; one more is refused. */
const MAX_PENDING_READS = 4096;
/** How long work waits for a connection before it is refused. */
const QUEUE_TIMEOUT_MS = 5_000;
/** How long an answer is waited for: longer than a server that is well lets any statement run. */
const STATEMENT_TIMEOUT_MS = 10_000;

export type Access = "read" | "write";

export interface Limiter {
  /**
   * @param timeout_ms how long the work may take, once it has begun; its place stays taken until it ends
   * @throws {AppError} unavailable when too many wait, or it takes too long
   */
  run<Result>(access: Access, work: () => Promise<Result>, timeout_ms?: number): Promise<Result>;
  /** How many writes have begun or wait. */
  pendingWrites(): number;
  isFull(): boolean;
  /** Resolves when nothing runs or waits. */
  idle(): Promise<void>;
}

/**
 * @param onTimeout called when it takes longer
 * @throws {AppError} unavailable when it takes longer; what becomes of the work nobody knows
 */
function withTimeout<Result>(
  work: Promise<Result>,
  timeout_ms: number,
  onTimeout: () => void,
): Promise<Result> {
  const { promise, resolve, reject } = Promise.withResolvers<Result>();
  const timer = setTimeout(() => {
    reject(new AppError("unavailable", "the database does not answer"));
    onTimeout();
  }, timeout_ms);
  work.then(resolve, reject).finally(() => clearTimeout(timer));
  return promise;
}

interface LimiterOptions {
  /** How many may run at once. */
  readonly connections: number;
  readonly max_pending_writes: number;
  readonly queue_timeout_ms?: number;
  /** Told that work has no answer in time, and when it began. */
  readonly onTimeout?: (started_ms: number) => void;
}

export function createLimiter({
  connections,
  max_pending_writes,
  queue_timeout_ms = QUEUE_TIMEOUT_MS,
  onTimeout,
}: LimiterOptions): Limiter {
  const queue: { readonly access: Access; readonly start: () => void }[] = [];
  const idle_waiters: (() => void)[] = [];
  const write_connections = Math.max(1, connections - Math.ceil(connections / READ_SHARE));
  const running = { read: 0, write: 0 };
  const pending = { read: 0, write: 0 };
  const max_pending = { read: MAX_PENDING_READS, write: max_pending_writes };

  function canStart(access: Access): boolean {
    if (running.read + running.write >= connections) return false;
    return access === "read" || running.write < write_connections;
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
      }, queue_timeout_ms);
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
    } else if (isIdle()) {
      for (const wake of idle_waiters.splice(0)) wake();
    }
  }

  function isIdle(): boolean {
    return running.read + running.write === 0;
  }

  return {
    async run(access, work, timeout_ms = STATEMENT_TIMEOUT_MS) {
      if (pending[access] >= max_pending[access]) {
        throw new AppError("unavailable", `too many ${access}s are waiting`);
      }
      pending[access] += 1;
      try {
        await acquire(access);
        const started_ms = performance.now();
        const result = work();
        const end = () => release(access);
        result.then(end, end);
        return await (timeout_ms === Number.POSITIVE_INFINITY
          ? result
          : withTimeout(result, timeout_ms, () => onTimeout?.(started_ms)));
      } finally {
        pending[access] -= 1;
      }
    },
    pendingWrites: () => pending.write,
    isFull: () => pending.write >= max_pending.write,
    idle() {
      if (isIdle()) return Promise.resolve();
      return new Promise((wake) => idle_waiters.push(wake));
    },
  };
}
