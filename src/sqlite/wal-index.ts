/**
 * Reads the state of the write-ahead log from its shared index, the `-shm` file.
 * @see https://www.sqlite.org/walformat.html#the_wal_index_header_format
 */
import { readSync } from "node:fs";

const HEADER_BYTES = 136;
const LOG_HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;

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
