/**
 * Limits concurrency to the size of the pool. Bun.SQL pipelines a query behind a busy connection even while others are
 * idle, so a slow statement would delay fast ones. Each kind of work has a queue, first in, first out.
 */
import { AppError } from "../../base/error.ts";

/** A `read` finds records by their keys, a `list` can take much longer, and the process does `background` work by itself. */
export type Kind = "read" | "list" | "write" | "background";

export const QUEUE_TIMEOUT_MS = 5_000;
/** Timeout of work. It exceeds that of a statement: only a server that does not respond, or several slow statements, reach it. */
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
  problem: string,
  onTimeout: () => void,
): Promise<Result> {
  const { promise, resolve, reject } = Promise.withResolvers<Result>();
  const timer = setTimeout(() => {
    reject(new AppError("unavailable", `the database ${problem}`));
    onTimeout();
  }, timeoutMs);
  work.then(resolve, reject).finally(() => clearTimeout(timer));
  return promise;
}

interface Work {
  readonly kind: Kind;
  /** Of a list: those of one client have different turns, and the lowest goes first. */
  readonly turn: number;
  readonly begin: () => void;
}

type Queues = ReturnType<typeof createQueues>;

function createQueues(connections: number) {
  return {
    connections,
    shares: sharesOf(connections),
    running: { read: 0, list: 0, write: 0, background: 0 },
    /** Of all kinds, in the order of their arrival. */
    waiting: new Set<Work>(),
    turns: new Map<string, number>(),
    /** That of the list that began last: a client gets none before it. */
    turn: 0,
    idleWaiters: [] as (() => void)[],
  };
}

const countOf = ({ read, list, write, background }: Queues["running"]) =>
  read + list + write + background;

function canStart({ connections, shares, running }: Queues, kind: Kind): boolean {
  const count = countOf(running);
  if (count >= connections || running[kind] >= shares[kind]) return false;
  return kind === "read" || count - running.read < Math.max(1, connections - 1);
}

/** @returns the first that can start, or the list of another client that goes before it */
function findNext(queues: Queues): Work | undefined {
  let next: Work | undefined;
  for (const work of queues.waiting) {
    const isFirst = next === undefined && canStart(queues, work.kind);
    const isList = work.kind === "list" && next?.kind === "list";
    if (isFirst || (isList && work.turn < (next?.turn ?? 0))) next = work;
  }
  return next;
}

function start(queues: Queues, { kind, turn, begin }: Work): void {
  queues.running[kind] += 1;
  if (kind === "list") queues.turn = turn;
  begin();
}

/** Starts now if it can. Then none of its kind waits: `release` starts the first that can. */
async function acquire(queues: Queues, kind: Kind, client: string, timeoutMs: number) {
  const { promise, resolve: begin } = Promise.withResolvers<void>();
  const turn = Math.max(queues.turn, (queues.turns.get(client) ?? 0) + 1);
  if (kind === "list") queues.turns.set(client, turn);
  const work: Work = { kind, turn, begin };
  if (canStart(queues, kind)) return start(queues, work);
  queues.waiting.add(work);
  await withTimeout(promise, timeoutMs, "is busy", () => queues.waiting.delete(work));
}

function release(queues: Queues, kind: Kind): void {
  const { running, waiting, turns } = queues;
  running[kind] -= 1;
  const next = findNext(queues);
  if (next !== undefined) {
    waiting.delete(next);
    start(queues, next);
  }
  if (running.list === 0) turns.clear();
  if (countOf(running) === 0) for (const wake of queues.idleWaiters.splice(0)) wake();
}

export function createConnectionQueues(options: {
  readonly connections: number;
  readonly queueTimeoutMs?: number;
  readonly onTimeout?: (work: Promise<unknown>) => void;
}) {
  const { connections, queueTimeoutMs = QUEUE_TIMEOUT_MS, onTimeout } = options;
  const queues = createQueues(connections);
  return {
    /** @param timeoutMs of the work: after it, the connection counts as busy until the work ends */
    async run<Result>(
      kind: Kind,
      work: () => Promise<Result>,
      timeoutMs = WORK_TIMEOUT_MS,
      client = "",
    ): Promise<Result> {
      await acquire(queues, kind, client, queueTimeoutMs);
      const result = work();
      const end = () => release(queues, kind);
      result.then(end, end);
      return timeoutMs === Number.POSITIVE_INFINITY
        ? result
        : withTimeout(result, timeoutMs, "does not respond", () => onTimeout?.(result));
    },
    shares: queues.shares,
    async idle(): Promise<void> {
      if (countOf(queues.running) === 0) return;
      await new Promise<void>((wake) => queues.idleWaiters.push(wake));
    },
  };
}
