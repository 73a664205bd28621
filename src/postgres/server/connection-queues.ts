/**
 * Limits concurrency to the size of the pool. Bun.SQL pipelines a query behind a busy connection even while others are
 * idle, so a slow statement would delay fast ones. Each kind of work has a queue, first in, first out.
 */
import { AppError } from "../../base/error.ts";

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
    // Numbering does not wait for the last use of tokens, nor for what is deleted.
    background: connections < 5 ? 1 : 2,
  };
}

/** @throws {AppError} unavailable if work times out, which goes on; its outcome is then unknown */
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

interface Waiting {
  readonly kind: Kind;
  readonly client: string;
  readonly start: () => void;
}

interface ConnectionQueuesOptions {
  readonly connections: number;
  readonly queueTimeoutMs?: number;
  /** Called with work that has timed out. */
  readonly onTimeout?: (work: Promise<unknown>) => void;
}

export function createConnectionQueues({
  connections,
  queueTimeoutMs = QUEUE_TIMEOUT_MS,
  onTimeout,
}: ConnectionQueuesOptions) {
  const shares = sharesOf(connections);
  const running: Record<Kind, number> = { read: 0, list: 0, write: 0, background: 0 };
  /** The clients of the running lists. */
  const listClients: string[] = [];
  /** The clients whose lists have ended since work began to wait, the last one at the end. */
  let served: string[] = [];
  /** Of all kinds, in the order of their arrival. */
  const waiting = new Set<Waiting>();
  const idleWaiters: (() => void)[] = [];

  function canStart(kind: Kind): boolean {
    const others = running.list + running.write + running.background;
    if (running.read + others >= connections || running[kind] >= shares[kind]) return false;
    return kind === "read" || others < Math.max(1, connections - 1);
  }

  function count(kind: Kind, client: string, change: 1 | -1): void {
    running[kind] += change;
    if (kind !== "list") return;
    if (change === 1) listClients.push(client);
    else listClients.splice(listClients.indexOf(client), 1);
  }

  /** Starts at once if it can. Then none of its kind waits: `release` starts the first that can. */
  async function acquire(kind: Kind, client: string): Promise<void> {
    if (canStart(kind)) {
      count(kind, client, 1);
      return;
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const entry = { kind, client, start: resolve };
    waiting.add(entry);
    const timer = setTimeout(() => {
      waiting.delete(entry);
      reject(new AppError("unavailable", "the database is busy"));
    }, queueTimeoutMs);
    await promise;
    clearTimeout(timer);
  }

  function isIdle(): boolean {
    return Object.values(running).every((count) => count === 0);
  }

  /** Whether a list goes before another one: its client has fewer that run, or has not had a turn for longer. */
  function goesBefore(one: Waiting, other: Waiting): boolean {
    const listsOf = ({ client }: Waiting) => listClients.filter((each) => each === client).length;
    const difference = listsOf(one) - listsOf(other);
    return (
      difference < 0 ||
      (difference === 0 && served.indexOf(one.client) < served.indexOf(other.client))
    );
  }

  /** @returns the first that can start, or the list of another client that goes before it */
  function findNext(): Waiting | null {
    let next: Waiting | null = null;
    for (const entry of waiting) {
      if (next === null && canStart(entry.kind)) next = entry;
      if (next === null) continue;
      if (next.kind !== "list") break;
      if (entry.kind === "list" && goesBefore(entry, next)) next = entry;
    }
    return next;
  }

  function release(kind: Kind, client: string): void {
    count(kind, client, -1);
    if (kind === "list") served = [...served.filter((each) => each !== client), client];
    if (waiting.size === 0) served = [];
    const next = findNext();
    if (next !== null) {
      waiting.delete(next);
      count(next.kind, next.client, 1);
      next.start();
    }
    if (isIdle()) for (const wake of idleWaiters.splice(0)) wake();
  }

  return {
    /**
     * Runs work as soon as a connection is free for its kind.
     * @param client who reads a list, so that nobody waits for all lists of others
     * @param timeoutMs timeout from the start of the work; after it, the connection counts as busy until the work ends
     * @throws {AppError} unavailable if no connection becomes free, or the work times out
     */
    async run<Result>(
      kind: Kind,
      work: () => Promise<Result>,
      timeoutMs = WORK_TIMEOUT_MS,
      client = "",
    ): Promise<Result> {
      await acquire(kind, client);
      const result = work();
      const end = () => release(kind, client);
      result.then(end, end);
      return timeoutMs === Number.POSITIVE_INFINITY
        ? result
        : withTimeout(result, timeoutMs, () => onTimeout?.(result));
    },
    /** How much work of each kind can run at the same time. */
    shares,
    /** Resolves when no work runs or waits. */
    idle(): Promise<void> {
      if (isIdle()) return Promise.resolve();
      return new Promise((wake) => idleWaiters.push(wake));
    },
  };
}
