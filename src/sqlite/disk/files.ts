/** The files of a database on the disk of this machine. */
import { fstatSync, readSync, rmSync } from "node:fs";
import { suffixes } from "../../base/database-url.ts";
import type { DatabaseFiles, OpenDatabase } from "../archive/machine.ts";
import type { FileDescriptors } from "../file/file-watch.ts";
import { discard, fileState, freeBytesOf, requireWritable, sizeOf } from "../file/files.ts";
import { committedBytes, readWalState } from "../file/wal-index.ts";
import { openCopy } from "./copy.ts";
import { holderName, lockIdentity } from "./identity.ts";
import { noteArchived, notTheArchive, readMarker, writeMarker } from "./marker.ts";
import { openProgress } from "./progress.ts";
import { beginRestore } from "./restored-file.ts";
import { pinWal } from "./wal-pin.ts";
import { beginningOf, continuesAt, createWalReader } from "./wal-reader.ts";
import { beginWal } from "./wal-writer.ts";

/** @param path of a database that stays open in this process. Another descriptor would release SQLite's locks when closed */
function openDatabase(path: string, descriptors: FileDescriptors): OpenDatabase {
  const { database, index } = descriptors;
  return {
    walBytes: () => committedBytes(readWalState(index)),
    continuesAt: (position) => continuesAt(descriptors, position),
    beginning: () => beginningOf(descriptors),
    readWal: (start) => createWalReader(descriptors, start),
    readFile(at, length) {
      const bytes = new Uint8Array(length);
      return bytes.subarray(0, readSync(database, bytes, 0, length, at));
    },
    fileBytes: () => fstatSync(database).size,
    pinWal: () => pinWal(path),
    openProgress: () => openProgress(path),
    openCopy: (start) => openCopy(path, descriptors, start),
  };
}

/**
 * @param path without symbolic links: the other files are next to it
 * @param verify throws an AppError, operator, if the database at its path is damaged
 */
export function databaseFiles(path: string, verify: (path: string) => void): DatabaseFiles {
  return {
    path,
    holder: holderName(path),
    notTheArchive: notTheArchive(path),
    lockIdentity: () => lockIdentity(path),
    bytes: () => sizeOf(path),
    walBytes: () => sizeOf(path + suffixes.wal),
    state: () => fileState(path),
    freeBytes: () => freeBytesOf(path),
    readMarker: () => readMarker(path),
    writeMarker: (marker) => writeMarker(path, marker),
    requireWritable: () => requireWritable(path),
    noteArchived: (timeMs) => noteArchived(path, timeMs),
    discard: () => discard(path),
    discardWal() {
      for (const suffix of [suffixes.wal, suffixes.shm]) rmSync(path + suffix, { force: true });
    },
    beginWal: () => beginWal(path),
    beginRestore: () => beginRestore(path, verify),
    open: (descriptors) => openDatabase(path, descriptors),
  };
}
