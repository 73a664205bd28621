/**
 * A lease on an object: at most one process at a time holds it.
 *
 * Its holder renews it, and counts its time from before it sends a renewal. Another process takes it when the object
 * has not changed for longer than that, by its own clock. So clocks need not agree on the time, only on the length of
 * a second. All writes are conditional: one that arrives late does nothing.
 */
import { AppError, messageOf } from "../base/error.ts";
import type { ObjectStorage } from "./object-storage.ts";

export interface LeaseClock {
  /** Never goes back, and may stop while the machine sleeps. */
  readonly monotonicMs: () => number;
  /** May be set, and does not stop. */
  readonly wallMs: () => number;
  /** Resolves after this time, or when the signal is aborted. */
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>;
}

export interface LeaseOptions {
  readonly key: string;
  /** Names this process for operators, e.g. its host. */
  readonly holder: string;
  /**
   * Returns a text that no other running process has, e.g. because it is that of a locked file. If the holder has the
   * same, it was an earlier process, and this one need not wait. Called for each write.
   */
  readonly identity: () => string;
  /** The highest number that is known from elsewhere, in case that somebody has deleted the object; 0 if none is. */
  readonly lastNumber: () => Promise<number>;
  /** How long the lease is held without a renewal. A request must time out sooner. */
  readonly durationMs: number;
  /** How often the holder renews it, and others look at it. */
  readonly intervalMs: number;
  readonly clock: LeaseClock;
  /** Called with the name of the holder, once for each that this process waits for. */
  readonly onWait: (holder: string) => void;
  /** Called when an attempt has failed, and with `null` when one succeeds after that. */
  readonly onProblem: (error: AppError | null) => void;
}

export interface Lease {
  /** Random. */
  readonly id: string;
  /**
   * Waits until this process holds the lease. Later calls return the same number at once, also if the lease was lost.
   * @returns the number of the lease, higher than that of every earlier holder
   * @throws {AppError} operator if the storage cannot be used, or has no conditional writes
   * @throws the reason of the signal
   */
  acquire(signal: AbortSignal): Promise<number>;
  /** Whether no other process can hold the lease. While it cannot be renewed, this is `false`, perhaps not for good. */
  isHeld(): boolean;
  /**
   * Resolves with the name of the process that has taken the lease; `null` if somebody has deleted the object. The lease
   * never comes back.
   */
  readonly whenLost: Promise<string | null>;
  /** Gives the lease up, so that the next process need not wait. Does not fail. */
  release(): Promise<void>;
}

/**
 * A process waits this much longer than the duration of the lease, as a fraction of it, because a clock may be faster
 * than another.
 */
const MARGIN = 0.1;

/** More than a lease has. */
const MAX_BYTES = 2 ** 16;

/** Attempts per interval after one has failed. */
const ATTEMPTS = 5;

/** No object has this tag. */
const NO_TAG = '"00000000000000000000000000000000"';

const NOT_CONDITIONAL = "the server does not support conditional writes";

/** The content of the object. No two writes have the same, so that tags do not repeat. */
interface LeaseState {
  /** That of the `Lease` that wrote it. A process may have several, one after the other. */
  readonly id: string;
  readonly holder: string;
  readonly identity: string;
  readonly number: number;
  readonly durationMs: number;
  readonly isReleased: boolean;
  /** Number of the write. */
  readonly sequence: number;
  /** When this state was sent, by the clocks of its process: no other can compare them with its own. */
  readonly sentMs: number;
  readonly sentWallMs: number;
}

interface Found {
  readonly state: LeaseState;
  readonly tag: string;
}

function encodeState(state: LeaseState): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(JSON.stringify(state));
}

function decodeState(body: Uint8Array): LeaseState | null {
  try {
    const state: LeaseState = JSON.parse(new TextDecoder().decode(body));
    return Number.isSafeInteger(state.number) && state.durationMs > 0 ? state : null;
  } catch {
    return null;
  }
}

export const systemClock: LeaseClock = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  sleep(ms, signal) {
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(end, signal.aborted ? 0 : ms);
    function end(): void {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    }
    signal.addEventListener("abort", end);
    return promise;
  },
};

export function createLease(storage: ObjectStorage, options: LeaseOptions): Lease {
  const { key, holder, identity, durationMs, intervalMs, clock, onProblem } = options;
  const id = crypto.randomUUID();
  const lost = Promise.withResolvers<string | null>();
  const stopping = new AbortController();
  let sequence = 0;
  /** The newest state of the object that this process knows of; `null` if it is not its own. */
  let own: Found | null = null;
  /** `null` until the lease was acquired. */
  let acquired: number | null = null;
  let renewing: Promise<void> = Promise.resolve();
  /** Whether the last attempt has failed. */
  let isFailing = false;

  function unusable(problem: string): AppError {
    return new AppError("operator", `Cannot use ${storage.url}: ${problem}`);
  }

  async function find(): Promise<Found | null> {
    const object = await storage.get(key, MAX_BYTES);
    if (object === null) return null;
    const state = decodeState(object.body);
    if (state === null) throw unusable(`${key} is not a lease of this program`);
    return { state, tag: object.tag };
  }

  /**
   * @param tag of the state to replace; `null` to create the object
   * @returns the state of the object: that of another process, or this one, perhaps of an earlier write whose response
   * was lost
   */
  async function write(
    number: number,
    tag: string | null,
    isReleased = false,
  ): Promise<Found | null> {
    sequence += 1;
    const sent = { sentMs: clock.monotonicMs(), sentWallMs: clock.wallMs() };
    const owner = { id, holder, identity: identity() };
    const state = { ...owner, number, durationMs, isReleased, sequence, ...sent };
    const body = encodeState(state);
    const newTag = await (tag === null
      ? storage.create(key, body)
      : storage.replace(key, body, tag));
    if (newTag !== null) return { state, tag: newTag };
    const found = await find();
    if (found !== null && found.tag === tag) throw unusable(NOT_CONDITIONAL);
    return found;
  }

  function isOwn(found: Found | null): found is Found {
    return found?.state.id === id;
  }

  /** @param repeated codes of the errors after which the work is repeated @returns whether it succeeded */
  async function attempt(
    work: () => Promise<void>,
    repeated: readonly AppError["code"][],
  ): Promise<boolean> {
    try {
      await work();
      if (isFailing) onProblem(null);
      isFailing = false;
      return true;
    } catch (error) {
      const known = error instanceof AppError ? error : new AppError("internal", messageOf(error));
      if (!repeated.includes(known.code)) throw error;
      isFailing = true;
      onProblem(known);
      return false;
    }
  }

  /** @throws {AppError} operator if the storage would let two processes take the lease at the same time */
  async function requireConditionalWrites({ state }: Found): Promise<void> {
    const body = encodeState(state);
    const created = await storage.create(key, body);
    const replaced = created ?? (await storage.replace(key, body, NO_TAG));
    if (replaced !== null) throw unusable(NOT_CONDITIONAL);
  }

  /** @returns a function that tries once to take the lease and returns the delay before the next attempt */
  function createTaker() {
    /** The last tag seen (`null`: no object), and when it was first seen. */
    let seen: { readonly tag: string | null; readonly sinceMs: number } | null = null;
    let waitsFor: string | null = null;

    /** @returns how long the holder must still be waited for; less than 0 if it need not be */
    function remainingMs(found: Found | null): number {
      const tag = found?.tag ?? null;
      const nowMs = clock.monotonicMs();
      if (seen === null || seen.tag !== tag) seen = { tag, sinceMs: nowMs };
      const { state } = found ?? {};
      if (waitsFor !== (state?.id ?? "")) options.onWait(state?.holder ?? "an unknown server");
      waitsFor = state?.id ?? "";
      return seen.sinceMs + (state?.durationMs ?? durationMs) * (1 + MARGIN) - nowMs;
    }

    return async (): Promise<number> => {
      const found = await find();
      const number = found?.state.number ?? (await options.lastNumber());
      const isFree =
        found === null
          ? number === 0
          : found.state.isReleased || found.state.identity === identity();
      const waitMs = isFree ? 0 : remainingMs(found);
      if (waitMs > 0) return Math.min(waitMs, intervalMs);
      const written = await write(number + 1, found?.tag ?? null);
      // Renews it at once: a lease that was just created has not shown that the storage accepts a replacement.
      const renewed = isOwn(written) ? await write(number + 1, written.tag) : null;
      if (isOwn(renewed)) {
        await requireConditionalWrites(renewed);
        own = renewed;
      }
      return 0;
    };
  }

  async function renew(): Promise<void> {
    if (own === null) return;
    const written = await write(own.state.number, own.tag);
    own = isOwn(written) ? written : null;
    if (own === null) lost.resolve(written?.state.holder ?? null);
  }

  async function keepRenewing(): Promise<void> {
    let waitMs = intervalMs;
    while (own !== null) {
      await clock.sleep(waitMs, stopping.signal);
      if (stopping.signal.aborted) return;
      const isRenewed = await attempt(renew, ["unavailable", "operator", "internal"]);
      waitMs = isRenewed ? intervalMs : intervalMs / ATTEMPTS;
    }
  }

  return {
    id,
    async acquire(signal) {
      if (acquired !== null) return acquired;
      const take = createTaker();
      for (;;) {
        signal.throwIfAborted();
        let waitMs = intervalMs / ATTEMPTS;
        await attempt(async () => {
          waitMs = await take();
        }, ["unavailable"]);
        if (own !== null) break;
        await clock.sleep(waitMs, signal);
      }
      renewing = keepRenewing();
      acquired = own.state.number;
      return acquired;
    },
    isHeld() {
      if (own === null || stopping.signal.aborted) return false;
      const { sentMs, sentWallMs } = own.state;
      return Math.max(clock.monotonicMs() - sentMs, clock.wallMs() - sentWallMs) < durationMs;
    },
    whenLost: lost.promise,
    async release() {
      stopping.abort();
      await renewing;
      await attempt(async () => {
        while (own !== null) {
          const written: Found | null = await write(own.state.number, own.tag, true);
          own = isOwn(written) && !written.state.isReleased ? written : null;
        }
      }, ["unavailable", "operator", "internal"]);
    },
  };
}
