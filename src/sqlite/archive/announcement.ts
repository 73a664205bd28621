/** A standby announces itself, so that the server that writes beats faster, and an operator can promote the standby. */
import type { ObjectStorage } from "../../domain/object-storage.ts";
import type { ArchiveContext } from "./context.ts";
import { decodeJson, encodeJson, HEAD_BYTES, isNumber, isWithin } from "./format.ts";
import { orNull } from "./log-reader.ts";
import { HEARTBEAT_MS } from "./still.ts";

/** Says that a standby follows the archive. */
export interface Announcement {
  readonly holder: string;
  readonly takeoverMs: number;
  /** When it was written, by the clock of the standby: for operators. 0 when it was withdrawn. */
  readonly timeMs: number;
}

export const ANNOUNCEMENT_KEY = "standby";
const ANNOUNCEMENT_MS = 15_000;
/** A standby that has not announced itself for this long is gone. */
export const MAX_SILENCE_MS = 4 * ANNOUNCEMENT_MS;
/** Heartbeats while a standby waits before it takes over. */
const BEATS_PER_TAKEOVER = 4;
/** Bounds of TAKEOVER_SECONDS. */
const [MIN_TAKEOVER_MS, MAX_TAKEOVER_MS] = [3_000, 300_000];

/**
 * @returns the last one; `null` if there is none
 * @throws {AppError} operator if it is damaged
 */
export async function readAnnouncement(storage: ObjectStorage): Promise<Announcement | null> {
  const body = await storage.get(ANNOUNCEMENT_KEY, HEAD_BYTES);
  const isSound = ({ timeMs, takeoverMs }: Announcement) =>
    isNumber(timeMs) && isWithin(takeoverMs, MIN_TAKEOVER_MS, MAX_TAKEOVER_MS);
  return body === null ? null : decodeJson(ANNOUNCEMENT_KEY, body, isSound);
}

/** Upper bound for withdrawing the announcement at the end. */
const WITHDRAWAL_MS = 1_000;

/** Announces a standby, and withdraws that when it is disposed of. */
export function announceRegularly(
  storage: ObjectStorage,
  own: Pick<Announcement, "holder" | "takeoverMs">,
  nowMs: () => number,
  onError: (error: unknown) => void,
): AsyncDisposable {
  const announce = (timeMs: number) =>
    storage.put(ANNOUNCEMENT_KEY, encodeJson({ ...own, timeMs })).catch(onError);
  void announce(nowMs());
  const timer = setInterval(() => void announce(nowMs()), ANNOUNCEMENT_MS);
  return {
    async [Symbol.asyncDispose]() {
      clearInterval(timer);
      await Promise.race([announce(0), Bun.sleep(WITHDRAWAL_MS)]);
    },
  };
}

/** @returns a function that looks for a standby, and returns the interval of heartbeats that it needs */
export function createStandbyWatch({ storage, clock }: ArchiveContext): () => Promise<number> {
  let seen = "";
  let seenMs = Number.NEGATIVE_INFINITY;
  let intervalMs = HEARTBEAT_MS;
  return async () => {
    // The next announcement of the standby replaces a damaged one.
    const announcement = await orNull(readAnnouncement(storage));
    if (announcement !== null) {
      const { holder, timeMs, takeoverMs } = announcement;
      if (`${holder} ${timeMs}` !== seen) seenMs = clock.monotonicMs();
      seen = `${holder} ${timeMs}`;
      intervalMs = Math.min(HEARTBEAT_MS, Math.ceil(takeoverMs / BEATS_PER_TAKEOVER));
    }
    return clock.monotonicMs() - seenMs < MAX_SILENCE_MS ? intervalMs : HEARTBEAT_MS;
  };
}
