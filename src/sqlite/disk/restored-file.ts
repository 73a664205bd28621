/** Writes a database from its base and the parts of its WAL, and gives it its name. */
import { appendFileSync, lstatSync, rmSync, writeFileSync } from "node:fs";
import { suffixes } from "../../base/database-url.ts";
import { fail } from "../../base/error.ts";
import { makeTemporaryDatabase } from "../../base/temporary-file.ts";
import type { ObjectStorage } from "../../domain/object-storage.ts";
import type { RestoredFile, RestoreTarget } from "../archive/machine.ts";
import { restoreTo } from "../archive/read/rebuild.ts";
import { connect } from "../file/connection.ts";
import * as files from "../file/files.ts";
import { FRAME_HEADER_BYTES, WAL_HEADER_BYTES } from "../file/wal-index.ts";
import { readMarker, settleMarker, writeMarker } from "./marker.ts";
import { systemMachine } from "./system-machine.ts";
import { copyWal } from "./wal-pin.ts";
import { noteCommits, type WrittenWal } from "./wal-writer.ts";

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
  files.discardWal(path);
}

/** The parts of the WAL are applied at each restart. */
function openTarget(path: string): RestoreTarget {
  let wal: (WrittenWal & { readonly salt: string; offset: number }) | null = null;

  function endWal(): void {
    if (wal !== null) applyWal(path, wal);
    wal = null;
  }

  return {
    beginFile() {
      files.discard(path);
      writeFileSync(path, "", { flag: "wx", mode: files.PRIVATE_MODE });
    },
    appendFile: (bytes) => appendFileSync(path, bytes),
    appendWal({ salt, offset }, bytes) {
      if (bytes.length < WAL_HEADER_BYTES || (wal?.salt !== salt && offset !== 0)) return false;
      if (wal?.salt !== salt) {
        endWal();
        const pageBytes = Buffer.from(bytes.buffer, bytes.byteOffset).readUInt32BE(8);
        wal = { salt, frameBytes: FRAME_HEADER_BYTES + pageBytes, offset: 0, committed: 0 };
      }
      if (offset !== wal.offset) return false;
      appendFileSync(path + suffixes.wal, bytes, { mode: files.PRIVATE_MODE });
      noteCommits(wal, bytes, offset);
      wal.offset += bytes.length;
      return true;
    },
    endWal,
  };
}

/** As {@link restoreTo}, to a file without a WAL. It is not synced, and not verified as a database. */
export async function restoreToFile(path: string, storage: ObjectStorage, at: Date | null) {
  return await restoreTo(openTarget(path), systemMachine, storage, at);
}

export function beginRestore(path: string, verify: (path: string) => void): RestoredFile {
  files.makeParents(path);
  // Asked again, because another server may have been waited for. Not a symbolic link, which would become a file.
  const file = lstatSync(path, { throwIfNoEntry: false });
  if (file?.isFile() && file.size === 0) rmSync(path);
  const isCopy = readMarker(path)?.isCopy === true;
  if (!isCopy) files.requireAbsent(path);
  const temporary = makeTemporaryDatabase(path);
  return {
    ...openTarget(temporary.path),
    publish(markerOf) {
      verify(temporary.path);
      writeMarker(path, markerOf(files.fileState(temporary.path)), temporary.path);
      // Not before: it may be the only one that is left.
      if (isCopy) files.discard(path);
      files.publish(temporary.path, path);
      settleMarker(path);
    },
    [Symbol.dispose]: temporary[Symbol.dispose],
  };
}
