/**
 * Reads the state of the write-ahead log from its shared index, the `-shm` file.
 * @see https://www.sqlite.org/walformat.html#the_wal_index_header_format
 */
import { readSync } from "node:fs";

const HEADER_BYTES = 136;
/** The header is there twice, so that a reader notices when it is being written. */
const COPY_BYTES = 48;
/** Writing it takes less than a microsecond, unless the writer is interrupted. */
const READ_ATTEMPTS = 1000;
export const LOG_HEADER_BYTES = 32;
export const FRAME_HEADER_BYTES = 24;

/** @returns whether the frame at this offset, of the log or a part of it, ends a commit */
export function isCommit(log: Buffer, offset: number): boolean {
  // The size of the database after a commit; 0 in any other frame.
  return log.readUInt32BE(offset + 4) > 0;
}

export interface WalIndex {
  /** Minimum size of the log: its header and all frames, each of which holds a page. */
  readonly logBytes: number;
  /** Number of frames that checkpoints have copied to the database (SQLite: `nBackfill`). */
  readonly backfilledFrames: number;
  /**
   * The value of `backfilledFrames` at the end of the last checkpoint that was started (SQLite: `nBackfillAttempted`).
   * While it is larger, a checkpoint writes to the database.
   */
  readonly backfillTargetFrames: number;
  /** Changes when the log starts again at its beginning, because all of its frames have been copied. */
  readonly salt: bigint;
}

/**
 * @param descriptor of the index, whose numbers are in the byte order of the machine: little-endian on x64 and arm64
 * @returns reads the index; its result is `null` if the disk fails
 */
export function createWalIndexReader(descriptor: number): () => WalIndex | null {
  const header = Buffer.alloc(HEADER_BYTES);
  return () => {
    try {
      readSync(descriptor, header, 0, HEADER_BYTES, 0);
    } catch {
      return null;
    }
    const frames = header.readUInt32LE(16);
    const frameBytes = FRAME_HEADER_BYTES + header.readUInt16LE(14);
    return {
      logBytes: frames === 0 ? 0 : LOG_HEADER_BYTES + frames * frameBytes,
      backfilledFrames: header.readUInt32LE(96),
      backfillTargetFrames: header.readUInt32LE(128),
      salt: header.readBigUInt64LE(32),
    };
  };
}

/** @returns whether a checkpoint may have written to the database between two states of its log */
export function mayHaveCopied(before: WalIndex, after: WalIndex): boolean {
  return after.salt !== before.salt || after.backfilledFrames > before.backfilledFrames;
}

/** What has been committed to the log. */
export interface LogState {
  readonly pageBytes: number;
  /** Number of frames, up to the last commit. */
  readonly frames: number;
  /** As in the header of the log, in hexadecimal. */
  readonly salt: string;
  /** Number of commits modulo 2^32, also of other processes and across restarts of the log (SQLite: `iChange`). */
  readonly commits: number;
}

/**
 * @param descriptor of the index
 * @throws {Error} if the index cannot be read
 */
export function readLogState(descriptor: number): LogState {
  const header = Buffer.alloc(2 * COPY_BYTES);
  for (let attempt = 0; attempt < READ_ATTEMPTS; attempt += 1) {
    readSync(descriptor, header, 0, header.length, 0);
    if (header.compare(header, 0, COPY_BYTES, COPY_BYTES) !== 0) continue;
    const size = header.readUInt16LE(14);
    return {
      // SQLite writes 65,536 as 1.
      pageBytes: size === 1 ? 65_536 : size,
      frames: header.readUInt32LE(16),
      salt: header.toString("hex", 32, 40),
      commits: header.readUInt32LE(8),
    };
  }
  throw new Error("the index of the write-ahead log is inconsistent");
}
