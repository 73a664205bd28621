/**
 * Detects that a file of the open database was moved, deleted, replaced, or overwritten by another program. SQLite keeps
 * writing to its open files, so later writes would be acknowledged and missing after a restart.
 */
import { closeSync, fstatSync, openSync, readSync, type Stats, statSync } from "node:fs";
import { suffixes } from "../../base/database-url.ts";
import { systemCode } from "../../base/error.ts";
import { unavailableError } from "./errors.ts";
import type { ServerLock } from "./server-lock.ts";
import { committedBytes, readWalState, type WalState } from "./wal-index.ts";

/** Bytes at the beginning of the database that are compared when its time has changed. */
const PREFIX_BYTES = 2 ** 20;

export interface FileWatch {
  /**
   * Verifies that all files are in place. Call it before a write begins and again before it is acknowledged.
   * @throws {AppError} unavailable if a file was moved, deleted, replaced or overwritten, or the lock is lost
   */
  requireInPlace(): void;
  /** @returns whether no file was moved, deleted, replaced or overwritten, and the lock is held */
  isInPlace(): boolean;
  /** Call it after the database is closed. */
  close(): void;
}

/** Watches nothing: a database at rest has no WAL, and `DatabaseFile.requireUnchanged` watches the file. */
export const nothingToWatch: FileWatch = {
  isInPlace: () => true,
  requireInPlace() {},
  close() {},
};

/** Descriptors of the database, its WAL and its index, which stay open as long as the database. */
export interface FileDescriptors {
  readonly database: number;
  readonly wal: number;
  readonly index: number;
}

interface WatchedFile {
  readonly path: string;
  /** Stays open as long as the database. */
  readonly descriptor: number;
  /** Properties of the file that is open. */
  readonly opened: Stats;
}

function openFile(path: string): WatchedFile {
  const descriptor = openSync(path, "r");
  return { path, descriptor, opened: fstatSync(descriptor) };
}

/** @returns the properties of the file; if it is not the one that is open, what has happened */
function examine({ path, opened }: WatchedFile): Stats | string {
  try {
    const stats = statSync(path);
    const isSame = stats.ino === opened.ino && stats.dev === opened.dev;
    return isSame ? stats : `${path} has been replaced by another file`;
  } catch (error) {
    const code = systemCode(error);
    const what = code === "ENOENT" ? "has been moved or deleted" : `cannot be examined (${code})`;
    return `${path} ${what}`;
  }
}

/**
 * @param path path of the open database. Its files must exist.
 * @param onChange called with the problem when a file is not in place, and with `null` when all are back. If a file was
 * overwritten, the WAL does not belong to the database, and the problem remains.
 * @param lock of a server; `null` for a command
 */
export function watchFiles(
  path: string,
  onChange: (problem: string | null, isOverwritten: boolean) => void,
  lock: ServerLock | null,
): FileWatch & { readonly descriptors: FileDescriptors } {
  // They stay open as long as the database: closing any descriptor of a file releases all locks that the process
  // holds on it, including those of SQLite. See https://www.sqlite.org/howtocorrupt.html, section 2.2.
  const database = openFile(path);
  const wal = openFile(path + suffixes.wal);
  const index = openFile(path + suffixes.shm);
  const open = [database, wal, index];
  const prefix = Buffer.alloc(PREFIX_BYTES);
  let lastState = readState();
  let content = readContent();
  let overwritten: string | null = null;
  let problem: string | null = null;

  /** @returns `null` if the disk fails */
  function readState(): WalState | null {
    try {
      return readWalState(index.descriptor);
    } catch {
      return null;
    }
  }

  /** @returns what tells whether the database file has changed, with a hash of its first bytes */
  function readContent() {
    const { size, mtimeMs } = fstatSync(database.descriptor);
    const bytes = readSync(database.descriptor, prefix, 0, PREFIX_BYTES, 0);
    const hash = Bun.hash(prefix.subarray(0, bytes));
    return { sizeBytes: size, modifiedMs: Math.floor(mtimeMs), hash };
  }

  /**
   * Only checkpoints write to the database, and the index of the WAL shows what they have copied.
   * @param current before the database was examined
   * @returns false also if the disk fails, because a write that was committed must not be reported as failed
   */
  function findOverwrite({ size, mtimeMs }: Stats, current: WalState | null): boolean {
    if (size === content.sizeBytes && Math.floor(mtimeMs) === content.modifiedMs) {
      lastState = current ?? lastState;
      return false;
    }
    // Once more: now it shows every checkpoint that had written to the database when that was examined.
    const [before, after] = [lastState, readState()];
    // A checkpoint is recognized when it has ended.
    if (after === null || after.backfilledFrames < after.backfillTargetFrames) return false;
    const last = content;
    try {
      content = readContent();
    } catch {
      return false;
    }
    lastState = after;
    // Some file systems update the time of a file late.
    const isSame = content.sizeBytes === last.sizeBytes && content.hash === last.hash;
    if (isSame || before === null) return false;
    return after.salt === before.salt && after.backfilledFrames <= before.backfilledFrames;
  }

  function isTruncated(state: WalState | null, walBytes: number): boolean {
    return state !== null && walBytes < committedBytes(state);
  }

  function findProblem(): string | null {
    // Before the size of the WAL, which grows before the index says so.
    const current = readState();
    const databaseStats = examine(database);
    if (typeof databaseStats === "string") return databaseStats;
    const walStats = examine(wal);
    if (typeof walStats === "string") return walStats;
    const indexStats = examine(index);
    if (typeof indexStats === "string") return indexStats;
    // Once more, because another process may have emptied the WAL after a checkpoint.
    const isWalTruncated =
      isTruncated(current, walStats.size) &&
      isTruncated(readState(), fstatSync(wal.descriptor).size);
    if (isWalTruncated) overwritten = `${wal.path} has been truncated by another program`;
    else if (findOverwrite(databaseStats, current))
      overwritten = `${path} has been overwritten by another program`;
    return overwritten ?? lock?.findProblem() ?? null;
  }

  function isInPlace(): boolean {
    const before = problem;
    try {
      problem = findProblem();
    } catch (error) {
      problem = `${path} cannot be examined (${systemCode(error)})`;
    }
    if ((problem === null) !== (before === null)) onChange(problem, overwritten !== null);
    return problem === null;
  }

  return {
    descriptors: {
      database: database.descriptor,
      wal: wal.descriptor,
      index: index.descriptor,
    },
    isInPlace,
    requireInPlace() {
      if (isInPlace()) return;
      throw unavailableError("written", new Error(problem ?? ""));
    },
    close() {
      for (const { descriptor } of open.splice(0)) closeSync(descriptor);
    },
  };
}
