/** A standby announces itself, so that the server that writes beats faster, and an operator can promote the standby. */
import type { ObjectStorage } from "../../../domain/object-storage.ts";
import type { ServerContext } from "../context.ts";
import { decodeJson, encodeJson, HEAD_BYTES, HEARTBEAT_MS, isNumber, isWithin } from "../format.ts";
import { orNull } from "../read/catalog.ts";

export interface Announcement {
  readonly holder: string;
  readonly takeoverMs: number;
  /** When it was written, by the clock of the standby: for operators. 0 when it was withdrawn. */
  readonly timeMs: number;
  /** The key of what it cannot read, or {@link prefixes.bases} if it can restore no state; `null` if it lacks nothing. */
  readonly lacks: string | null;
  /** Whether it has a copy, and its disk could be written. */
  readonly canWrite: boolean;
}

export const ANNOUNCEMENT_KEY = "standby";
const ANNOUNCEMENT_MS = 15_000;
/** Upper bound for withdrawing the announcement at the end. */
const WITHDRAWAL_MS = 1_000;
/** A standby that has not announced itself for this long is gone. */
export const MAX_SILENCE_MS = 4 * ANNOUNCEMENT_MS;
/** Heartbeats while a standby waits before it takes over. */
const BEATS_PER_TAKEOVER = 4;
/** Bounds of TAKEOVER_SECONDS. */
const [MIN_TAKEOVER_MS, MAX_TAKEOVER_MS] = [3_000, 300_000];

/** @returns the last one; `null` if there is none. @throws {AppError} operator if it is damaged */
export async function readAnnouncement(storage: ObjectStorage): Promise<Announcement | null> {
  const body = await storage.get(ANNOUNCEMENT_KEY, HEAD_BYTES);
  const isSound = ({ timeMs, takeoverMs }: Announcement) =>
    isNumber(timeMs) && isWithin(takeoverMs, MIN_TAKEOVER_MS, MAX_TAKEOVER_MS);
  const earlier = { lacks: null, canWrite: true };
  return body === null ? null : { ...earlier, ...decodeJson(ANNOUNCEMENT_KEY, body, isSound) };
}

export type Announcing = ReturnType<typeof announceRegularly>;

/** Announces a standby, and withdraws that when it is disposed of. */
export function announceRegularly(
  { storage, files, machine, takeoverMs }: ServerContext,
  state: () => Pick<Announcement, "lacks" | "canWrite">,
  onError: (error: unknown) => void,
) {
  let last: Promise<void> = Promise.resolve();
  // One after the other, so that the last one stays.
  const put = (timeMs: () => number) => {
    const write = () => {
      const own = { holder: files.holder, takeoverMs, ...state(), timeMs: timeMs() };
      return storage.put(ANNOUNCEMENT_KEY, encodeJson(own satisfies Announcement)).catch(onError);
    };
    last = last.then(write);
    return last;
  };
  const announce = () => void put(machine.nowMs);
  announce();
  const announcing = machine.every(ANNOUNCEMENT_MS, announce);
  return {
    announce,
    async [Symbol.asyncDispose]() {
      announcing[Symbol.dispose]();
      await Promise.race([put(() => 0), machine.sleep(WITHDRAWAL_MS)]);
    },
  };
}

/** Watches for standbys, by the clock of this machine. */
export function createStandbyWatch({ storage, machine }: ServerContext) {
  let last: Announcement | null = null;
  /** Not before it has changed: the first one can be that of a standby which ended long ago. */
  let changedMs = Number.NEGATIVE_INFINITY;
  let hasLooked = false;
  let seenMs = Number.NEGATIVE_INFINITY;
  const isRecent = (timeMs: number) => machine.monotonicMs() - timeMs < MAX_SILENCE_MS;
  return {
    /** @returns the last announcement, if it was written within the last minute, and not withdrawn */
    current: (): Announcement | null => (isRecent(changedMs) && last?.timeMs !== 0 ? last : null),
    async look(): Promise<number> {
      // The next announcement of the standby replaces a damaged one.
      const found = await orNull(readAnnouncement(storage));
      if (found !== null && (found.holder !== last?.holder || found.timeMs !== last.timeMs)) {
        seenMs = machine.monotonicMs();
        if (hasLooked) changedMs = seenMs;
      }
      last = found ?? last;
      hasLooked = true;
      if (last === null || !isRecent(seenMs)) return HEARTBEAT_MS;
      return Math.min(HEARTBEAT_MS, Math.ceil(last.takeoverMs / BEATS_PER_TAKEOVER));
    },
  };
}
