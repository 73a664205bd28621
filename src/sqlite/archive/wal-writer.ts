/** Rebuilds a write-ahead log (WAL) from its parts, and lets SQLite copy it to the database. */
import { closeSync, openSync, rmSync, writeSync } from "node:fs";
import { suffixes } from "../../base/database-url.ts";
import { fail } from "../../base/error.ts";
import { connect } from "../file/connection.ts";
import { PRIVATE_MODE } from "../file/files.ts";
import { FRAME_HEADER_BYTES, isCommit, WAL_HEADER_BYTES } from "../file/wal-index.ts";
import { copyWal } from "./wal-lock.ts";
import type { WalPosition } from "./wal-reader.ts";

/** @returns where the last commit in this part of a WAL ends, as an offset in the WAL; `null` if none does */
export function committedEnd(offset: number, bytes: Buffer, frameBytes: number): number | null {
  const first = offset === 0 ? WAL_HEADER_BYTES : 0;
  for (let at = bytes.length - frameBytes; at >= first; at -= frameBytes)
    if (isCommit(bytes, at)) return offset + at + frameBytes;
  return null;
}

export function writeFully(descriptor: number, bytes: Uint8Array, position: number): void {
  for (let at = 0; at < bytes.length; )
    at += writeSync(descriptor, bytes, at, bytes.length - at, position + at);
}

interface PartialWal {
  readonly descriptor: number;
  readonly salt: string;
  readonly frameBytes: number;
  offset: number;
  /** Size up to the last commit, in bytes. */
  committed: number;
}

/** Lets SQLite copy the WAL to the database, which verifies its checksums. */
function applyWal(path: string, { committed, frameBytes }: PartialWal): void {
  {
    using db = connect(path);
    // If this is interrupted, it begins again with a new file.
    db.run("pragma synchronous = off");
    const copied = copyWal(db) ?? -1;
    if (copied * frameBytes !== Math.max(0, committed - WAL_HEADER_BYTES))
      fail("operator", "the archive is damaged: SQLite rejects a part of the WAL");
  }
  rmSync(path + suffixes.wal, { force: true });
  rmSync(path + suffixes.shm, { force: true });
}

/** Appends parts of the WAL, and applies it at each restart. */
export function createWalWriter(path: string) {
  let wal: PartialWal | null = null;

  function finish(): void {
    const finished = wal;
    if (finished === null) return;
    wal = null;
    closeSync(finished.descriptor);
    applyWal(path, finished);
  }

  function restart(salt: string, bytes: Buffer): PartialWal {
    finish();
    const descriptor = openSync(path + suffixes.wal, "wx", PRIVATE_MODE);
    const frameBytes = FRAME_HEADER_BYTES + bytes.readUInt32BE(8);
    wal = { descriptor, salt, frameBytes, offset: 0, committed: 0 };
    return wal;
  }

  return {
    finish,
    /** @returns whether the part continues the one before it */
    append({ salt, offset }: Pick<WalPosition, "salt" | "offset">, bytes: Buffer): boolean {
      if (bytes.length < WAL_HEADER_BYTES || (wal?.salt !== salt && offset !== 0)) return false;
      const current = wal?.salt === salt ? wal : restart(salt, bytes);
      if (offset !== current.offset) return false;
      current.committed = committedEnd(offset, bytes, current.frameBytes) ?? current.committed;
      writeFully(current.descriptor, bytes, offset);
      current.offset += bytes.length;
      return true;
    },
    [Symbol.dispose]() {
      if (wal !== null) closeSync(wal.descriptor);
    },
  };
}
