/**
 * As many pieces of work at once as there are connections. More would be sent behind another's on one
 * connection, and wait for it for as long as it runs, while other connections have nothing to do.
 */
import { AppError } from "../error.ts";

/** Of the places, the part that writes leave to reads: all writes may wait for one lock. */
const READS_PART = 5;
/** Reads that wait at most; one more is refused. */
const MAX_PENDING_READS = 4096;
/** How long work waits for a connection before it is refused. */
const QUEUE_PATIENCE_MS = 5_000;
/** How long an answer is waited for: longer than a server that is well lets any statement run. */
const ANSWER_PATIENCE_MS = 10_000;

export type Kind = "read" | "write";

export interface Gate {
  /**
   * @param patience_ms how long the work may take, once it has begun; its place stays taken until it ends
   * @throws {AppError} unavailable when too many wait, or it takes too long
   */
  run<Result>(kind: Kind, work: () => Promise<Result>, patience_ms?: number): Promise<Result>;
  /** How many writes have begun or wait. */
  pending(): number;
  isFull(): boolean;
  /** Resolves when nothing runs or waits. */
  idle(): Promise<void>;
}

/**
 * @param onSilence called when it takes longer
 * @throws {AppError} unavailable when it takes longer; what becomes of the work nobody knows
 */
function within<Result>(
  work: Promise<Result>,
  patience_ms: number,
  onSilence: () => void,
): Promise<Result> {
  const { promise, resolve, reject } = Promise.withResolvers<Result>();
  const timer = setTimeout(() => {
    reject(new AppError("unavailable", "the database does not answer"));
    onSilence();
  }, patience_ms);
  work.then(resolve, reject).finally(() => clearTimeout(timer));
  return promise;
}

interface GateOptions {
  /** How many may run at once. */
  readonly places: number;
  readonly max_pending_writes: number;
  readonly queue_patience_ms?: number;
  /** Told that work has no answer in time, and when it began. */
  readonly onSilence?: (began_ms: number) => void;
}

export function createGate({
  places,
  max_pending_writes,
  queue_patience_ms = QUEUE_PATIENCE_MS,
  onSilence,
}: GateOptions): Gate {
  const queue: { readonly kind: Kind; readonly begin: () => void }[] = [];
  const waiters: (() => void)[] = [];
  const places_of_writes = Math.max(1, places - Math.ceil(places / READS_PART));
  const running = { read: 0, write: 0 };
  const pending = { read: 0, write: 0 };
  const most = { read: MAX_PENDING_READS, write: max_pending_writes };

  function mayBegin(kind: Kind): boolean {
    if (running.read + running.write >= places) return false;
    return kind === "read" || running.write < places_of_writes;
  }

  function enter(kind: Kind): Promise<void> {
    if (mayBegin(kind)) {
      running[kind] += 1;
      return Promise.resolve();
    }
    return new Promise((resolve, reject) => {
      const waiting = {
        kind,
        begin() {
          clearTimeout(timer);
          resolve();
        },
      };
      const timer = setTimeout(() => {
        queue.splice(queue.indexOf(waiting), 1);
        reject(new AppError("unavailable", "the database is busy"));
      }, queue_patience_ms);
      queue.push(waiting);
    });
  }

  function leave(kind: Kind): void {
    running[kind] -= 1;
    const at = queue.findIndex((waiting) => mayBegin(waiting.kind));
    const [next] = at === -1 ? [] : queue.splice(at, 1);
    if (next !== undefined) {
      running[next.kind] += 1;
      next.begin();
    } else if (isIdle()) {
      for (const wake of waiters.splice(0)) wake();
    }
  }

  function isIdle(): boolean {
    return running.read + running.write === 0;
  }

  return {
    async run(kind, work, patience_ms = ANSWER_PATIENCE_MS) {
      if (pending[kind] >= most[kind]) {
        throw new AppError("unavailable", `too many ${kind}s are waiting`);
      }
      pending[kind] += 1;
      try {
        await enter(kind);
        const began_ms = performance.now();
        const answer = work();
        const end = () => leave(kind);
        answer.then(end, end);
        return await (patience_ms === Number.POSITIVE_INFINITY
          ? answer
          : within(answer, patience_ms, () => onSilence?.(began_ms)));
      } finally {
        pending[kind] -= 1;
      }
    },
    pending: () => pending.write,
    isFull: () => pending.write >= most.write,
    idle() {
      if (isIdle()) return Promise.resolve();
      return new Promise((wake) => waiters.push(wake));
    },
  };
}
