/** A standby announces itself, so that the server that writes beats faster, and an operator can promote the standby. */
import { decodeJson, isNumber } from "./format.ts";

/** Says that a standby follows the archive. */
export interface Announcement {
  /** Names the standby for operators. */
  readonly holder: string;
  /** Changes each time. */
  readonly sequence: number;
  /** How long it waits before it takes over. */
  readonly takeoverMs: number;
  /** When it was written, by the clock of the standby: for operators. */
  readonly timeMs: number;
}

export const ANNOUNCEMENT_KEY = "standby";

/** @throws {AppError} operator if it is not an announcement */
export function decodeAnnouncement(body: Uint8Array): Announcement {
  const isSound = ({ sequence, takeoverMs }: Announcement) =>
    isNumber(sequence) && isNumber(takeoverMs) && takeoverMs > 0;
  return decodeJson(ANNOUNCEMENT_KEY, body, isSound);
}
