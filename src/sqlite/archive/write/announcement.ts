/** A standby announces itself, so that an operator, or a server whose disk fails, can hand over to it. */
import type { ObjectStorage } from "../../../domain/object-storage.ts";
import type { ServerContext } from "../context.ts";
import { decodeJson, encodeJson, HEAD_BYTES, isNumber } from "../format.ts";
import { orNull } from "../read/catalog.ts";

export interface Announcement {
  readonly holder: string;
  /** When it was written, by the clock of the standby: for operators. */
  readonly timeMs: number;
  /** The key of what it cannot read, or {@link prefixes.bases} if it can restore no state; `null` if it lacks nothing. */
  readonly lacks: string | null;
  /** Whether it has a copy, and its disk could be written. */
  readonly canWrite: boolean;
}

export const ANNOUNCEMENT_KEY = "standby";
const ANNOUNCEMENT_MS = 15_000;
/** A standby that has not announced itself for this long is gone. */
export const MAX_SILENCE_MS = 4 * ANNOUNCEMENT_MS;

/** @returns the last one; `null` if there is none. @throws {AppError} operator if it is damaged */
export async function readAnnouncement(storage: ObjectStorage): Promise<Announcement | null> {
  const body = await storage.get(ANNOUNCEMENT_KEY, HEAD_BYTES);
  const isSound = ({ timeMs }: Announcement) => isNumber(timeMs);
  return body && decodeJson(ANNOUNCEMENT_KEY, body, isSound);
}

/** Announces a standby until it is disposed of. What fails is repeated with the next announcement. */
export function announceRegularly(
  { storage, files, machine }: ServerContext,
  state: () => Pick<Announcement, "lacks" | "canWrite">,
) {
  let last: Promise<void> = Promise.resolve();
  // One after the other, so that the last one stays.
  const announce = () => {
    const write = () => {
      const own = { holder: files.holder, ...state(), timeMs: machine.nowMs() };
      return storage.put(ANNOUNCEMENT_KEY, encodeJson(own satisfies Announcement)).catch(() => {});
    };
    last = last.then(write);
  };
  announce();
  return { announce, ...machine.every(ANNOUNCEMENT_MS, announce) };
}

/** Watches for standbys, by the clock of this machine. */
export function createStandbyWatch({ storage, machine, files }: ServerContext) {
  /** `undefined` before the first look. */
  let last: Announcement | null | undefined;
  /** Not before it has changed: the first one can be that of a standby which ended long ago. */
  let changedMs = Number.NEGATIVE_INFINITY;
  return {
    /** @returns the last announcement, if another server has written it within the last minute */
    current(): Announcement | null {
      const isRecent = machine.monotonicMs() - changedMs < MAX_SILENCE_MS;
      return isRecent && last && last.holder !== files.holder ? last : null;
    },
    async look(): Promise<void> {
      // The next announcement of the standby replaces a damaged one.
      const found = await orNull(readAnnouncement(storage));
      const isNew = found?.holder !== last?.holder || found?.timeMs !== last?.timeMs;
      if (found !== null && isNew && last !== undefined) changedMs = machine.monotonicMs();
      last = found ?? last ?? null;
    },
  };
}
