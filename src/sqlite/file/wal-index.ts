/** The state of the WAL, from its index (`-shm`). @see https://www.sqlite.org/walformat.html#the_wal_index_header_format */
import { readSync } from "node:fs";
import { fail } from "../../base/error.ts";

/** Reused, because a server reads the header twice for each commit. */
const header = Buffer.alloc(136);
/** The header is there twice, so that a reader notices when it is being written. */
const COPY_BYTES = 48;
/** Of both. A header of zeros is invalid: the next connection recovers the WAL. */
export const INDEX_HEADER_BYTES = 2 * COPY_BYTES;
/** Writing it takes less than a microsecond, unless the writer is interrupted. */
const READ_ATTEMPTS = 1000;
export const WAL_HEADER_BYTES = 32;
export const FRAME_HEADER_BYTES = 24;

/** @returns whether the frame at this offset, of the WAL or a part of it, ends a commit */
export function isCommit(wal: Buffer, offset: number): boolean {
  // The size of the database after a commit; 0 in any other frame.
  return wal.readUInt32BE(offset + 4) > 0;
}

/** What has been committed to the WAL, and how much of it checkpoints have copied to the database. */
export type WalState = ReturnType<typeof readWalState>;

/** @returns the size of the WAL up to the last commit; 0 for an unknown state */
export function committedBytes(state: Pick<WalState, "frames" | "pageBytes"> | null): number {
  const { frames = 0, pageBytes = 0 } = state ?? {};
  return frames === 0 ? 0 : WAL_HEADER_BYTES + frames * (FRAME_HEADER_BYTES + pageBytes);
}

/** @param descriptor of the index, in the byte order of the machine. @throws {AppError} unavailable while it is being written */
export function readWalState(descriptor: number) {
  for (let attempt = 0; attempt < READ_ATTEMPTS; attempt += 1) {
    if (readSync(descriptor, header, 0, header.length, 0) < header.length)
      throw new Error("the index of the write-ahead log is too short");
    if (header.compare(header, 0, COPY_BYTES, COPY_BYTES, 2 * COPY_BYTES) !== 0) continue;
    const size = header.readUInt16LE(14);
    return {
      // SQLite writes 65,536 as 1.
      pageBytes: size === 1 ? 65_536 : size,
      /** Number of frames, up to the last commit. Each holds a page. */
      frames: header.readUInt32LE(16),
      /** As in the header of the WAL, in hexadecimal. Changes when the WAL starts again at its beginning. */
      salt: header.toString("hex", 32, 40),
      /** Number of commits modulo 2^32, also of other processes and across restarts of the WAL (SQLite: `iChange`). */
      commits: header.readUInt32LE(8),
      /** Number of frames that checkpoints have copied (SQLite: `nBackfill`). */
      backfilledFrames: header.readUInt32LE(96),
      /** `backfilledFrames` at the end of the last checkpoint that was started (`nBackfillAttempted`); larger while it runs. */
      backfillTargetFrames: header.readUInt32LE(128),
    };
  }
  return fail("unavailable", "the index of the write-ahead log is being written");
}
