/** Writes a database from its base and the parts of its WAL, and gives it its name. */
import { closeSync, lstatSync, openSync, rmSync } from "node:fs";
import { suffixes } from "../../base/database-url.ts";
import { fail } from "../../base/error.ts";
import { makeTemporaryDatabase } from "../../base/temporary-file.ts";
import type { ObjectStorage } from "../../domain/object-storage.ts";
import type { RestoredFile, RestoreTarget } from "../archive/machine.ts";
import { restoreTo } from "../archive/read/rebuild.ts";
import { connect } from "../file/connection.ts";
import {
  discard,
  fileState,
  makeParents,
  PRIVATE_MODE,
  publish,
  requireAbsent,
} from "../file/files.ts";
import { FRAME_HEADER_BYTES, WAL_HEADER_BYTES } from "../file/wal-index.ts";
import { readMarker, settleMarker, writeMarker } from "./marker.ts";
import { systemMachine } from "./system-machine.ts";
import { copyWal } from "./wal-pin.ts";
import { type WrittenWal, writeFully, writePart } from "./wal-writer.ts";

/** Lets SQLite copy the WAL to the database, which verifies its checksums. */
function applyWal(path: string, { committed, frameBytes }: WrittenWal): void {
  {
    using db = connect(path);
    // If this is interrupted, it begins again with a new file.
    db.run("pragma synchronous = off");
    const copied = copyWal(db) ?? -1;
    if (copied * frameBytes !== Math.max(0, committed - WAL_HEADER_BYTES))
      fail("operator", "the archive is damaged: SQLite rejects a part of the WAL");
  }
  for (const suffix of [suffixes.wal, suffixes.shm]) rmSync(path + suffix, { force: true });
}

/** The parts of the WAL are applied at each restart. */
function openTarget(path: string): RestoreTarget {
  let file: { readonly descriptor: number; bytes: number } | null = null;
  let wal: (WrittenWal & { readonly salt: string; offset: number }) | null = null;

  function endFile(): void {
    const ended = file;
    file = null;
    if (ended !== null) closeSync(ended.descriptor);
  }

  function endWal(): void {
    endFile();
    const ended = wal;
    if (ended === null) return;
    wal = null;
    closeSync(ended.descriptor);
    applyWal(path, ended);
  }

  return {
    beginFile() {
      endFile();
      discard(path);
      file = { descriptor: openSync(path, "wx", PRIVATE_MODE), bytes: 0 };
    },
    appendFile(bytes) {
      if (file === null) throw new Error("the file was not begun");
      writeFully(file.descriptor, bytes, file.bytes);
      file.bytes += bytes.length;
    },
    appendWal({ salt, offset }, bytes) {
      if (bytes.length < WAL_HEADER_BYTES || (wal?.salt !== salt && offset !== 0)) return false;
      if (wal?.salt !== salt) {
        endWal();
        const descriptor = openSync(path + suffixes.wal, "wx", PRIVATE_MODE);
        const pageBytes = Buffer.from(bytes.buffer, bytes.byteOffset).readUInt32BE(8);
        const frameBytes = FRAME_HEADER_BYTES + pageBytes;
        wal = { descriptor, salt, frameBytes, offset: 0, committed: 0 };
      }
      if (offset !== wal.offset) return false;
      writePart(wal, bytes, offset);
      wal.offset += bytes.length;
      return true;
    },
    endWal,
    [Symbol.dispose]() {
      endFile();
      if (wal !== null) closeSync(wal.descriptor);
    },
  };
}

/** As {@link restoreTo}, to a file without a WAL. It is not synced, and not verified as a database. */
export async function restoreToFile(path: string, storage: ObjectStorage, at: Date | null) {
  using target = openTarget(path);
  return await restoreTo(target, systemMachine, storage, at);
}

export function beginRestore(path: string, verify: (path: string) => void): RestoredFile {
  makeParents(path);
  // Asked again, because another server may have been waited for. Not a symbolic link, which would become a file.
  const file = lstatSync(path, { throwIfNoEntry: false });
  if (file?.isFile() && file.size === 0) rmSync(path);
  const isCopy = readMarker(path)?.isCopy === true;
  if (!isCopy) requireAbsent(path);
  const temporary = makeTemporaryDatabase(path);
  const target = openTarget(temporary.path);
  return {
    ...target,
    verify: () => verify(temporary.path),
    publish(markerOf) {
      writeMarker(path, markerOf(fileState(temporary.path)), temporary.path);
      // Not before: it may be the only one that is left.
      if (isCopy) discard(path);
      publish(temporary.path, path);
      settleMarker(path);
    },
    [Symbol.dispose]() {
      target[Symbol.dispose]();
      temporary[Symbol.dispose]();
    },
  };
}
