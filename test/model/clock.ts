/**
 * Time of a world of machines: a queue of events. Between two events, everything that may continue does so, so that a
 * history depends on its seed alone.
 */
import { drainMicrotasks } from "bun:jsc";
import type { Machine } from "../../src/sqlite/archive/machine.ts";
import { makeRandom } from "../support/random.ts";

/** Of the first event, by the clock on the wall. */
const EPOCH_MS = Date.UTC(2027, 0, 1);
/** More is a loop without a pause. */
const MAX_EVENTS = 400_000;

export type Random = (below: number) => number;

/** @returns random numbers that depend on the seed and the name alone, whatever else a history has */
export function randomOf(seed: number, name: string): Random {
  const random = makeRandom(Number(Bun.hash.xxHash32(`${seed} ${name}`)) | 1);
  for (let skipped = 0; skipped < 3; skipped += 1) random(2);
  return random;
}

export type Scheduler = ReturnType<typeof createScheduler>;

export function createScheduler() {
  /** The next one is the last. */
  const events: { readonly timeMs: number; readonly work: () => void }[] = [];
  let nowMs = 0;
  let count = 0;

  /** Puts an event before those that come first, in the order of their planning at the same time. */
  function plan(event: (typeof events)[number]): void {
    let [low, high] = [0, events.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((events[middle]?.timeMs ?? 0) > event.timeMs) low = middle + 1;
      else high = middle;
    }
    events.splice(low, 0, event);
  }

  return {
    nowMs: () => nowMs,
    after(ms: number, work: () => void): void {
      plan({ timeMs: nowMs + Math.max(0, ms), work });
    },
    /** Runs events until this time. @throws {Error} if there is no end of them */
    run(untilMs: number): void {
      for (let next = events.at(-1); next && next.timeMs <= untilMs; next = events.at(-1)) {
        events.pop();
        nowMs = next.timeMs;
        next.work();
        drainMicrotasks();
        count += 1;
        if (count > MAX_EVENTS) throw new Error("a loop without a pause");
      }
      nowMs = untilMs;
    },
  };
}

/** A computer, whatever runs on it. */
export type Host = ReturnType<typeof createHost>;

/** No process on it continues before `pausedUntilMs`. */
export function createHost(name: string, random: Random, scheduler: Scheduler) {
  return { name, random, scheduler, pausedUntilMs: 0, wallAheadMs: 0 };
}

/** What runs on a host, until it is killed: then nothing of it continues. */
export interface Process {
  readonly name: string;
  readonly host: Host;
  readonly isDead: () => boolean;
  /** With all of its threads. */
  readonly kill: () => void;
  /** Ends this thread alone. */
  readonly end: () => void;
  /** Runs work later, unless the process has ended by then. @returns prevents that */
  readonly after: (ms: number, work: () => void) => () => void;
}

/**
 * @param onError called with what work throws
 * @param parent of a thread
 */
export function startProcess(
  name: string,
  host: Host,
  onError: (error: unknown) => void = () => {},
  parent?: Process,
): Process {
  const { scheduler } = host;
  let hasEnded = false;
  const isDead = () => hasEnded || parent?.isDead() === true;
  const end = () => {
    hasEnded = true;
  };
  return {
    name,
    host,
    isDead,
    kill: parent?.kill ?? end,
    end,
    after(ms, work) {
      let isCancelled = false;
      const run = () => {
        if (isCancelled || isDead()) return;
        const restMs = host.pausedUntilMs - scheduler.nowMs();
        if (restMs > 0) return scheduler.after(restMs, run);
        try {
          work();
        } catch (error) {
          if (!isDead()) onError(error);
        }
      };
      scheduler.after(ms, run);
      return () => {
        isCancelled = true;
      };
    },
  };
}

/** @returns the machine as the process sees it */
export function machineOf(process: Process): Machine {
  const { name, host } = process;
  const { scheduler, random } = host;
  let ids = 0;
  const startedMs = random(1_000_000);
  return {
    monotonicMs: () => startedMs + scheduler.nowMs(),
    nowMs: () => EPOCH_MS + Math.floor(scheduler.nowMs()) + host.wallAheadMs,
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        if (signal?.aborted) return resolve();
        const cancel = process.after(ms, resolve);
        signal?.addEventListener("abort", () => {
          cancel();
          resolve();
        });
      }),
    every(ms, work) {
      let cancel = () => {};
      const next = () => {
        cancel = process.after(ms, () => {
          next();
          work();
        });
      };
      next();
      return { [Symbol.dispose]: () => cancel() };
    },
    newId: () => `${name}.${++ids}`,
    compress: async (bytes) => new Uint8Array(Bun.zstdCompressSync(bytes, { level: 1 })),
  };
}
