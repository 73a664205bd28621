/**
 * Reads the write-ahead log of an open database from a position to its end, and proves that nothing in between was
 * missed: SQLite restarts the log at its beginning when all of it is in the database.
 * @see https://www.sqlite.org/fileformat2.html#walformat
 */
import { readSync } from "node:fs";
import type { FileDescriptors } from "../file-watch.ts";
import {
  committedBytes,
  FRAME_HEADER_BYTES,
  isCommit,
  LOG_HEADER_BYTES,
  type LogState,
  readLogState,
} from "../wal-index.ts";

/** Where a part of the log ends. */
export interface LogPosition {
  /** Of the log since its last restart, in hexadecimal. */
  readonly salt: string;
  /** In bytes; 0 at the beginning of the log. */
  readonly offset: number;
  /** Checksum in the last frame before the offset, over everything since the restart; empty if there is none. */
  readonly checksum: string;
}

/** Consecutive frames, behind the header of the log if they are its first ones. */
export interface LogPart {
  readonly salt: string;
  readonly offset: number;
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly end: LogPosition;
}

export type LogFiles = Pick<FileDescriptors, "log" | "index">;

export interface LogReader {
  /**
   * Reads from the position on, whole frames only.
   * @returns the next part; `null` at the end of the log; `"gap"` if the log was restarted and parts of it may be lost
   */
  read(): LogPart | null | "gap";
  position(): LogPosition;
  /** @returns the bytes of the log that have not been read */
  unreadBytes(): number;
}

/** Bounds memory: a part and its compressed form. */
const MAX_PART_BYTES = 8 * 2 ** 20;

function readFully(descriptor: number, length: number, position: number): Buffer<ArrayBuffer> {
  const bytes = Buffer.alloc(length);
  for (let at = 0; at < length; ) {
    const count = readSync(descriptor, bytes, at, length - at, position + at);
    if (count === 0) throw new Error("the write-ahead log is shorter than its index says");
    at += count;
  }
  return bytes;
}

/** @param first offset of the first frame */
function countCommits(bytes: Buffer, first: number, pageBytes: number): number {
  let commits = 0;
  for (let at = first; at < bytes.length; at += FRAME_HEADER_BYTES + pageBytes) {
    if (isCommit(bytes, at)) commits += 1;
  }
  return commits;
}

/** @returns the checksum in the frame that ends at this offset; empty at the beginning of the log */
function checksumBefore(log: number, offset: number, pageBytes: number): string {
  if (offset <= LOG_HEADER_BYTES) return "";
  return readFully(log, 8, offset - pageBytes - 8).toString("hex");
}

/** @returns whether the log continues behind this position, of which a part was read earlier */
export function continuesAt({ log, index }: LogFiles, position: LogPosition): boolean {
  const state = readLogState(index);
  if (state.salt !== position.salt || position.offset > committedBytes(state)) return false;
  return checksumBefore(log, position.offset, state.pageBytes) === position.checksum;
}

/** @returns the size of the log up to the last commit, in bytes */
export function logBytes({ index }: Pick<LogFiles, "index">): number {
  return committedBytes(readLogState(index));
}

/** @returns the position at the beginning of the log as it is now */
export function beginningOf({ index }: LogFiles): LogPosition {
  return { salt: readLogState(index).salt, offset: 0, checksum: "" };
}

/** @param start a position in the log as it is now */
export function createLogReader({ log, index }: LogFiles, start: LogPosition): LogReader {
  let position = start;
  /** Number of commits up to the position; `null` before the end of the log was reached once. */
  let commits: number | null = null;

  /** The log was restarted. @returns whether everything before the restart had been read */
  function isComplete(state: LogState): boolean {
    if (commits === null) return false;
    const frameBytes = FRAME_HEADER_BYTES + state.pageBytes;
    const perPart = Math.floor(MAX_PART_BYTES / frameBytes);
    let inLog = 0;
    for (let frame = 0; frame < state.frames; frame += perPart) {
      const count = Math.min(perPart, state.frames - frame);
      const bytes = readFully(log, count * frameBytes, LOG_HEADER_BYTES + frame * frameBytes);
      inLog += countCommits(bytes, 0, state.pageBytes);
    }
    return (state.commits - commits) >>> 0 === inLog;
  }

  return {
    read() {
      const state = readLogState(index);
      const end = committedBytes(state);
      if (state.salt !== position.salt) {
        // Before the first commit after a restart, there is nothing to read.
        if (end === 0) return null;
        if (!isComplete(state)) return "gap";
        position = { salt: state.salt, offset: 0, checksum: "" };
      }
      if (end < position.offset) return "gap";
      if (end === position.offset) {
        commits = state.commits;
        return null;
      }
      const { offset } = position;
      const frameBytes = FRAME_HEADER_BYTES + state.pageBytes;
      const first = offset === 0 ? LOG_HEADER_BYTES : 0;
      const room = Math.floor((MAX_PART_BYTES - first) / frameBytes) * frameBytes;
      const length = Math.min(end - offset, first + room);
      const bytes = readFully(log, length, offset);
      const isRest = offset + length === end;
      if (isRest) commits = state.commits;
      else if (commits !== null)
        commits = (commits + countCommits(bytes, first, state.pageBytes)) >>> 0;
      const last = length - frameBytes;
      const checksum = bytes.toString("hex", last + 16, last + 24);
      position = { salt: state.salt, offset: offset + length, checksum };
      return { salt: state.salt, offset, bytes, end: position };
    },
    position: () => position,
    unreadBytes() {
      const state = readLogState(index);
      const end = committedBytes(state);
      return state.salt === position.salt ? Math.max(0, end - position.offset) : end;
    },
  };
}
