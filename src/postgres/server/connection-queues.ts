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
const kinds = ["read", "list", "write", "background"] as const;
export type Kind = (typeof kinds)[number];

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

interface Work {
  readonly kind: Kind;
  readonly client: string;
  readonly begin: () => void;
}

interface Queues {
  readonly connections: number;
  readonly shares: Readonly<Record<Kind, number>>;
  readonly running: Set<Work>;
  /** Of all kinds, in the order of their arrival. */
  readonly waiting: Set<Work>;
  /** The clients whose lists have ended since work began to wait, the last one at the end. */
  served: string[];
  readonly idleWaiters: (() => void)[];
}

function canStart({ connections, shares, running }: Queues, kind: Kind): boolean {
  const present = [...running].map((work) => work.kind);
  const same = present.filter((each) => each === kind).length;
  if (running.size >= connections || same >= shares[kind]) return false;
  const others = present.filter((each) => each !== "read").length;
  return kind === "read" || others < Math.max(1, connections - 1);
}

/** Whether a list goes before another one: its client has fewer that run, or has not had a turn for longer. */
function goesBefore(
  served: readonly string[],
  running: readonly Work[],
  one: Work,
  other: Work,
): boolean {
  const listsOf = ({ client }: Work) => running.filter((list) => list.client === client).length;
  const difference = listsOf(one) - listsOf(other);
  return (
    difference < 0 ||
    (difference === 0 && served.indexOf(one.client) < served.indexOf(other.client))
  );
}

/** @returns the first that can start, or the list of another client that goes before it */
function findNext(queues: Queues): Work | undefined {
  const startable = kinds.filter((kind) => canStart(queues, kind));
  const works = [...queues.waiting];
  const first = works.find(({ kind }) => startable.includes(kind));
  if (first?.kind !== "list") return first;
  const listsOf = (all: Iterable<Work>) => [...all].filter(({ kind }) => kind === "list");
  const running = listsOf(queues.running);
  return listsOf(works).reduce((next, list) =>
    goesBefore(queues.served, running, list, next) ? list : next,
  );
}

/** Starts at once if it can. Then none of its kind waits: `release` starts the first that can. */
async function acquire(queues: Queues, kind: Kind, client: string, timeoutMs: number) {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const work: Work = { kind, client, begin: resolve };
  if (canStart(queues, kind)) {
    queues.running.add(work);
    return work;
  }
  queues.waiting.add(work);
  const timer = setTimeout(() => {
    queues.waiting.delete(work);
    reject(new AppError("unavailable", "the database is busy"));
  }, timeoutMs);
  await promise;
  clearTimeout(timer);
  return work;
}

function release(queues: Queues, work: Work): void {
  const { running, waiting, served } = queues;
  const { kind, client } = work;
  running.delete(work);
  if (kind === "list") queues.served = [...served.filter((each) => each !== client), client];
  if (waiting.size === 0) queues.served = [];
  const next = findNext(queues);
  if (next !== undefined) {
    waiting.delete(next);
    running.add(next);
    next.begin();
  }
  if (running.size === 0) for (const wake of queues.idleWaiters.splice(0)) wake();
}

interface ConnectionQueuesOptions {
  readonly connections: number;
  readonly queueTimeoutMs?: number;
  readonly onTimeout?: (work: Promise<unknown>) => void;
}

export function createConnectionQueues(options: ConnectionQueuesOptions) {
  const { connections, queueTimeoutMs = QUEUE_TIMEOUT_MS, onTimeout } = options;
  const shares = sharesOf(connections);
  const queues: Queues = {
    connections,
    shares,
    running: new Set(),
    waiting: new Set(),
    served: [],
    idleWaiters: [],
  };
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
      const acquired = await acquire(queues, kind, client, queueTimeoutMs);
      const result = work();
      const end = () => release(queues, acquired);
      result.then(end, end);
      return timeoutMs === Number.POSITIVE_INFINITY
        ? result
        : withTimeout(result, timeoutMs, () => onTimeout?.(result));
    },
    shares,
    /** Resolves when no work runs or waits. */
    async idle(): Promise<void> {
      if (queues.running.size === 0) return;
      await new Promise<void>((wake) => queues.idleWaiters.push(wake));
    },
  };
}
