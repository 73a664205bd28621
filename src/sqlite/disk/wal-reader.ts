/** The WAL of a database. SQLite restarts it when all is copied. @see https://www.sqlite.org/fileformat2.html#walformat */
import { readSync } from "node:fs";
import type { WalPosition, WalReader } from "../archive/machine.ts";
import type { FileDescriptors } from "../file/file-watch.ts";
import * as walIndex from "../file/wal-index.ts";

type WalFiles = Pick<FileDescriptors, "wal" | "index">;

const GAP = "the WAL was restarted by another program";

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

export function openWal(files: WalFiles) {
  const { wal, index } = files;
  return {
    walBytes: () => walIndex.committedBytes(walIndex.readWalState(index)),
    continuesAt({ salt, offset, checksum }: WalPosition) {
      const state = walIndex.readWalState(index);
      if (state.salt !== salt || offset > walIndex.committedBytes(state)) return false;
      if (offset <= walIndex.WAL_HEADER_BYTES) return checksum === "";
      // It ends the header of the last frame.
      return readFully(wal, 8, offset - state.pageBytes - 8).toString("hex") === checksum;
    },
    beginning: () => ({ salt: walIndex.readWalState(index).salt, offset: 0, checksum: "" }),
    readWal: (start: WalPosition) => createWalReader(files, start),
  };
}

function createWalReader({ wal, index }: WalFiles, start: WalPosition): WalReader {
  let position = start;
  /** Number of commits up to the position; `null` unless that is the end of the WAL. */
  let commits: number | null = null;

  /** The WAL was restarted. @returns whether everything before the restart had been read */
  function isComplete(state: walIndex.WalState): boolean {
    if (commits === null) return false;
    const frameBytes = walIndex.FRAME_HEADER_BYTES + state.pageBytes;
    const perPart = Math.floor(MAX_PART_BYTES / frameBytes);
    let inWal = 0;
    for (let frame = 0; frame < state.frames; frame += perPart) {
      const count = Math.min(perPart, state.frames - frame);
      const first = walIndex.WAL_HEADER_BYTES + frame * frameBytes;
      const bytes = readFully(wal, count * frameBytes, first);
      for (let at = 0; at < bytes.length; at += frameBytes)
        if (walIndex.isCommit(bytes, at)) inWal += 1;
    }
    return (state.commits - commits) >>> 0 === inWal;
  }

  return {
    read() {
      const state = walIndex.readWalState(index);
      const end = walIndex.committedBytes(state);
      if (state.salt !== position.salt) {
        // Before the first commit after a restart, there is nothing to read.
        if (end === 0) return null;
        if (!isComplete(state)) throw new Error(GAP);
        position = { salt: state.salt, offset: 0, checksum: "" };
      }
      if (end < position.offset) throw new Error(GAP);
      if (end === position.offset) {
        commits = state.commits;
        return null;
      }
      const { offset } = position;
      const frameBytes = walIndex.FRAME_HEADER_BYTES + state.pageBytes;
      const first = offset === 0 ? walIndex.WAL_HEADER_BYTES : 0;
      const room = Math.floor((MAX_PART_BYTES - first) / frameBytes) * frameBytes;
      const length = Math.min(end - offset, first + room);
      const bytes = readFully(wal, length, offset);
      commits = offset + length === end ? state.commits : null;
      const last = length - frameBytes;
      const checksum = bytes.toString("hex", last + 16, last + 24);
      position = { salt: state.salt, offset: offset + length, checksum };
      return { salt: state.salt, offset, bytes, end: position };
    },
    unreadBytes() {
      const state = walIndex.readWalState(index);
      const end = walIndex.committedBytes(state);
      return state.salt === position.salt ? Math.max(0, end - position.offset) : end;
    },
  };
}
