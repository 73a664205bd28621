/** Writes parts of a write-ahead log (WAL). */
import { closeSync, fsyncSync, openSync, renameSync, writeSync } from "node:fs";
import { suffixes } from "../../base/database-url.ts";
import { claimTemporary } from "../../base/temporary-file.ts";
import type { WalFile } from "../archive/machine.ts";
import { PRIVATE_MODE } from "../file/files.ts";
import { isCommit, WAL_HEADER_BYTES } from "../file/wal-index.ts";

export interface WrittenWal {
  readonly descriptor: number;
  readonly frameBytes: number;
  /** Size up to the last commit, in bytes. */
  committed: number;
}

export function writeFully(descriptor: number, bytes: Uint8Array, position: number): void {
  for (let at = 0; at < bytes.length; )
    at += writeSync(descriptor, bytes, at, bytes.length - at, position + at);
}

/** @param bytes whole frames, after the header of the WAL if they are its first ones */
export function writePart(wal: WrittenWal, bytes: Uint8Array, offset: number): void {
  writeFully(wal.descriptor, bytes, offset);
  if (offset === 0) wal.committed = 0;
  const part = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  const first = offset === 0 ? WAL_HEADER_BYTES : 0;
  let at = bytes.length - wal.frameBytes;
  while (at >= first && !isCommit(part, at)) at -= wal.frameBytes;
  if (at >= first) wal.committed = offset + at + wal.frameBytes;
}

export function beginWal(path: string): WalFile {
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
