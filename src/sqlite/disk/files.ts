import { fstatSync, readFileSync, readSync, statSync } from "node:fs";
import { suffixes } from "../../base/database-url.ts";
import type { DatabaseFiles, Progress, ProgressReader } from "../archive/machine.ts";
import { connect } from "../file/connection.ts";
import * as files from "../file/files.ts";
import { lockPath } from "../file/server-lock.ts";
import { markerPath, noteArchived, readMarker, writeMarker } from "./marker.ts";
import { beginRestore } from "./restored-file.ts";
import { pinWal } from "./wal-pin.ts";
import { openWal } from "./wal-reader.ts";
import { beginWal, openCopy } from "./wal-writer.ts";

/** @returns the text of a file of Linux that has one line; `null` on other systems */
function readLine(path: string): string | null {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return null;
  }
}

export function holderName(databasePath: string): string {
  const host = readLine("/proc/sys/kernel/hostname");
  return host === null ? databasePath : `${host}:${databasePath}`;
}

const selectProgress = `
  select
    coalesce(last.id, 0) as changes,
    last.type || ' ' || last.record_id || ' ' || last.version || ' ' || last.created_at as lastChange,
    (select count(*) from tokens) as tokens,
    (select count(*) from tokens where revoked_at is not null) as revokedTokens
  from (select 1)
  left join changes as last on last.id = (select max(id) from changes where id <= $upTo)
`;

/** @param path of a database that stays open */
function openProgress(path: string): ProgressReader {
  const db = connect(path);
  // A write waits for it.
  db.run("pragma busy_timeout = 0");

  function readUpTo(upTo: number): Progress | null {
    try {
      return db.query<Progress, { upTo: number }>(selectProgress).get({ upTo });
    } catch {
      return null;
    }
  }

  return {
    read: () => readUpTo(Number.MAX_SAFE_INTEGER),
    lacks({ changes, lastChange, tokens, revokedTokens }) {
      const own = readUpTo(changes);
      // A change that has expired is another one, too: then it is unknown.
      if (own?.changes !== changes || own.lastChange !== lastChange) return true;
      return own.tokens < tokens || own.revokedTokens < revokedTokens;
    },
    [Symbol.dispose]: () => db.close(true),
  };
}

/** @param path without links. @param verify throws {AppError} operator if the database at its path is damaged */
export function diskFiles(path: string, verify: (path: string) => void): DatabaseFiles {
  return {
    path,
    holder: holderName(path),
    notTheArchive: `it is empty or another archive, and not the one of this database, e.g. because a disk is not mounted; to begin an archive there, delete ${markerPath(path)}`,
    lockIdentity() {
      const boot = readLine("/proc/sys/kernel/random/boot_id");
      if (boot === null) return crypto.randomUUID();
      const { dev, ino } = statSync(lockPath(path), { bigint: true });
      return `${boot}:${dev}:${ino}`;
    },
    bytes: () => files.sizeOf(path),
    walBytes: () => files.sizeOf(path + suffixes.wal),
    state: () => files.fileState(path),
    freeBytes: () => files.freeBytesOf(path),
    readMarker: () => readMarker(path),
    writeMarker: (marker) => writeMarker(path, marker),
    requireWritable: () => files.requireWritable(path),
    noteArchived: (timeMs) => noteArchived(path, timeMs),
    discard: () => files.discard(path),
    discardWal: () => files.discardWal(path),
    beginWal: () => beginWal(path),
    beginRestore: () => beginRestore(path, verify),
    // Another descriptor of an open database would release the locks of SQLite when closed.
    open(descriptors) {
      const { database } = descriptors;
      return {
        ...openWal(descriptors),
        readFile(at, length) {
          const bytes = new Uint8Array(length);
          return bytes.subarray(0, readSync(database, bytes, 0, length, at));
        },
        fileBytes: () => fstatSync(database).size,
        pinWal: () => pinWal(path),
        openProgress: () => openProgress(path),
        openCopy: (start) => openCopy(path, descriptors, start),
      };
    },
  };
}
