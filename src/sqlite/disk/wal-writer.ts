import { closeSync, fsyncSync, openSync, renameSync, writeSync } from "node:fs";
import { suffixes } from "../../base/database-url.ts";
import { fail, messageOf } from "../../base/error.ts";
import { claimTemporary } from "../../base/temporary-file.ts";
import type { Copy, DatabaseFiles, WalPosition } from "../archive/machine.ts";
import { pragma } from "../file/connection.ts";
import type { FileDescriptors } from "../file/file-watch.ts";
import { PRIVATE_MODE } from "../file/files.ts";
import * as walIndex from "../file/wal-index.ts";
import { connectForCheckpoints } from "./wal-pin.ts";

const NO_HEADER = Buffer.alloc(walIndex.INDEX_HEADER_BYTES);
/** A connection that recovers the WAL at the same time can write the index as it was before. */
const MAX_RECOVERIES = 10;

export interface WrittenWal {
  readonly frameBytes: number;
  /** Size up to the last commit, in bytes. */
  committed: number;
}

function writeFully(descriptor: number, bytes: Uint8Array, position: number): void {
  for (let at = 0; at < bytes.length; )
    at += writeSync(descriptor, bytes, at, bytes.length - at, position + at);
}

export function beginWal(path: string): ReturnType<DatabaseFiles["beginWal"]> {
  const temporaryPath = claimTemporary(path);
  const descriptor = openSync(temporaryPath, "wx", PRIVATE_MODE);
  return {
    write: (bytes, offset) => writeFully(descriptor, bytes, offset),
    publish() {
      fsyncSync(descriptor);
      renameSync(temporaryPath, path + suffixes.wal);
    },
    [Symbol.dispose]: () => closeSync(descriptor),
  };
}

/** @param bytes whole frames, after the header of the WAL if they are its first ones */
export function noteCommits(wal: WrittenWal, bytes: Uint8Array, offset: number): void {
  if (offset === 0) wal.committed = 0;
  const part = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  const first = offset === 0 ? walIndex.WAL_HEADER_BYTES : 0;
  let at = bytes.length - wal.frameBytes;
  while (at >= first && !walIndex.isCommit(part, at)) at -= wal.frameBytes;
  if (at >= first) wal.committed = offset + at + wal.frameBytes;
}

/**
 * Parts of the WAL are appended to that of the copy. Then the index of the WAL is made invalid, so that the next connection
 * recovers the WAL, and verifies its checksums.
 * @see https://www.sqlite.org/walformat.html#recovery
 * @param path of an open database that nothing else writes to
 */
export function openCopy(
  path: string,
  { wal, index }: FileDescriptors,
  start: WalPosition | null,
): Copy {
  const db = connectForCheckpoints(path);
  // Of readers, as long as this thread may wait. The next attempt comes soon.
  db.run("pragma busy_timeout = 1000");
  const read = db.prepare("select 1 from sqlite_schema limit 1");
  read.get();
  const opened = walIndex.readWalState(index);
  let end = start;
  /** Whether the WAL has everything from its beginning to the end. */
  let isWhole = start !== null && opened.salt === start.salt;
  const written: WrittenWal = {
    frameBytes: walIndex.FRAME_HEADER_BYTES + pragma(db, "page_size"),
    committed: walIndex.committedBytes(opened),
  };

  return {
    append({ salt, offset, end: next }, bytes) {
      const isNext = isWhole && salt === end?.salt && offset === end.offset;
      if (offset > 0 && !isNext) return false;
      writeFully(wal, bytes, offset);
      noteCommits(written, bytes, offset);
      isWhole = true;
      end = next;
      return true;
    },
    show() {
      for (let attempt = 0; written.committed > 0; attempt += 1) {
        writeFully(index, NO_HEADER, 0);
        read.get();
        const state = walIndex.readWalState(index);
        if (state.salt === end?.salt && walIndex.committedBytes(state) === written.committed)
          return;
        if (attempt === MAX_RECOVERIES)
          fail("operator", "the archive is damaged: SQLite rejects a part of the WAL");
      }
    },
    truncateWal() {
      using statement = db.prepare<{ busy: number }, []>("pragma wal_checkpoint(truncate)");
      try {
        if (statement.get()?.busy !== 0) return "another process reads an older state of the copy";
      } catch (error) {
        return messageOf(error);
      }
      written.committed = 0;
      isWhole = false;
      return null;
    },
    [Symbol.dispose]: () => db.close(true),
  };
}
