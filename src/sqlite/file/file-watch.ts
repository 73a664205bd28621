/** Notices that a file of the database was moved, deleted, replaced or overwritten: later writes would be lost at a restart. */
import { closeSync, fstatSync, openSync, readSync, type Stats, statSync } from "node:fs";
import { suffixes } from "../../base/database-url.ts";
import { AppError, fail, systemCode } from "../../base/error.ts";
import { unavailableError } from "./errors.ts";
import type { ServerLock } from "./server-lock.ts";
import { committedBytes, readWalState, type WalState } from "./wal-index.ts";

/** Bytes at the beginning of the database that are compared when its time has changed. */
const prefix = Buffer.alloc(2 ** 20);

/** `null` for a database at rest: it has no WAL, and `DatabaseFile.requireUnchanged` watches the file. */
export type FileWatch = ReturnType<typeof watchFiles> | null;

/** They stay open as long as the database. */
export type FileDescriptors = NonNullable<FileWatch>["descriptors"];

type WatchedFile = ReturnType<typeof openFile>;
type State = ReturnType<typeof openState>;

function openFile(path: string, flags: "r" | "r+") {
  const descriptor = openSync(path, flags);
  return { path, descriptor, opened: fstatSync(descriptor) };
}

/** @throws {AppError} unavailable if the file is not the one that is open */
function examine({ path, opened }: Pick<WatchedFile, "path" | "opened">): Stats {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return fail("unavailable", `${path} has been moved or deleted`);
  const isSame = stats.ino === opened.ino && stats.dev === opened.dev;
  return isSame ? stats : fail("unavailable", `${path} has been replaced by another file`);
}

/** @returns `null` if the disk fails */
function readState({ descriptor }: WatchedFile): WalState | null {
  try {
    return readWalState(descriptor);
  } catch {
    return null;
  }
}

function readContent({ descriptor }: WatchedFile) {
  const { size, mtimeMs } = fstatSync(descriptor);
  const bytes = readSync(descriptor, prefix, 0, prefix.length, 0);
  const hash = Bun.hash(prefix.subarray(0, bytes));
  return { sizeBytes: size, modifiedMs: Math.floor(mtimeMs), hash };
}

function openState(path: string, lock: ServerLock | null, isCopy: boolean) {
  // They stay open as long as the database: closing any descriptor of a file releases all locks that the process
  // holds on it, including those of SQLite. See https://www.sqlite.org/howtocorrupt.html, section 2.2.
  const database = openFile(path, "r");
  const flags = isCopy ? "r+" : "r";
  const wal = openFile(path + suffixes.wal, flags);
  const index = openFile(path + suffixes.shm, flags);
  return {
    ...{ database, wal, index, lock, isCopy },
    /** When the content was read, or before; `null` if the disk failed. */
    walState: readState(index),
    content: readContent(database),
    /** Once a file was overwritten, the WAL does not belong to the database. */
    overwritten: null as string | null,
  };
}

/**
 * Only checkpoints write to the database, and the index of the WAL shows what they have copied. @param current read before
 * @returns false also if the disk fails, because a write that was committed must not be reported as failed
 */
function isOverwritten(state: State, { size, mtimeMs }: Stats, current: WalState | null): boolean {
  const { content, walState } = state;
  if (size === content.sizeBytes && Math.floor(mtimeMs) === content.modifiedMs) {
    state.walState = current ?? walState;
    return false;
  }
  // Once more: now it shows every checkpoint that had written to the database when that was examined.
  const after = readState(state.index);
  // A checkpoint is recognized when it has ended.
  if (after === null || after.backfilledFrames < after.backfillTargetFrames) return false;
  try {
    state.content = readContent(state.database);
  } catch {
    return false;
  }
  state.walState = after;
  // Some file systems update the time of a file late.
  const isSame =
    state.content.sizeBytes === content.sizeBytes && state.content.hash === content.hash;
  if (isSame || walState === null) return false;
  return after.salt === walState.salt && after.backfilledFrames <= walState.backfilledFrames;
}

function findProblem(state: State): string | null {
  const { database, wal, index, lock } = state;
  // Before the size of the WAL, which grows before the index says so.
  const current = readState(index);
  const databaseStats = examine(database);
  const walStats = examine(wal);
  examine(index);
  if (lock !== null) examine(lock);
  // Once more, because another process may have emptied the WAL after a checkpoint.
  if (state.isCopy) return null;
  const isWalTruncated =
    walStats.size < committedBytes(current) &&
    fstatSync(wal.descriptor).size < committedBytes(readState(index));
  if (isWalTruncated) state.overwritten = `${wal.path} has been truncated by another program`;
  else if (isOverwritten(state, databaseStats, current))
    state.overwritten = `${database.path} has been overwritten by another program`;
  return state.overwritten;
}

/**
 * @param onChange called with the problem when a file is not in place, and with `null` when all are back. If a file was
 * overwritten, the WAL does not belong to the database, and the problem remains.
 * @param isCopy whether another thread, which uses the descriptors, overwrites the files
 */
export function watchFiles(
  path: string,
  onChange: (problem: string | null, isOverwritten: boolean) => void,
  lock: ServerLock | null,
  isCopy = false,
) {
  const state = openState(path, lock, isCopy);
  const { database, wal, index } = state;
  let problem: string | null = null;
  /** Of the system, if the files cannot be examined. */
  let code = "";

  function isInPlace(): boolean {
    const before = problem;
    code = "";
    try {
      problem = findProblem(state);
    } catch (error) {
      const isKnown = error instanceof AppError;
      code = isKnown ? "" : systemCode(error);
      problem = isKnown ? error.message : `${path} cannot be examined (${code})`;
    }
    if ((problem === null) !== (before === null)) onChange(problem, state.overwritten !== null);
    return problem === null;
  }

  return {
    descriptors: { database: database.descriptor, wal: wal.descriptor, index: index.descriptor },
    isInPlace,
    /** Call it before a write begins and before it is acknowledged. @throws {AppError} unavailable if a file is not in place */
    requireInPlace(): void {
      if (isInPlace()) return;
      throw unavailableError("written", Object.assign(new Error(problem ?? ""), code && { code }));
    },
    /** @returns the number of pages in the WAL, and how many are not in the database yet; 0 if the disk fails */
    walPages() {
      const { frames = 0, backfilledFrames = 0 } = readState(index) ?? {};
      return { all: frames, uncopied: frames - backfilledFrames };
    },
    /** Call it after the database is closed. */
    close(): void {
      for (const { descriptor } of [database, wal, index]) closeSync(descriptor);
    },
  };
}
