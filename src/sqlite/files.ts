/** Files that must be whole, or not there. */
import {
  chmodSync,
  chownSync,
  constants,
  copyFileSync,
  existsSync,
  linkSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, resolve } from "node:path";
import { fail, systemCode } from "../error.ts";
import { sync } from "../partial-file.ts";

/** What SQLite keeps beside a database. */
const SIDECAR_SUFFIXES = ["-wal", "-shm", "-journal"];

/** @returns what lies beside a database, or where one would be */
export function sidecarsOf(path: string): readonly string[] {
  return SIDECAR_SUFFIXES.filter((suffix) => existsSync(path + suffix));
}

/**
 * Told before a file is made here; whoever comes between is told by `publish`.
 * @throws {AppError} operator when something is in the way
 */
export function requireAbsent(path: string): void {
  if (statSync(path, { throwIfNoEntry: false }) !== undefined) {
    fail("operator", "there is such a file already");
  }
  // SQLite would take it for the new file's own, and bring it in.
  if (sidecarsOf(path).length > 0) fail("operator", "the log of another database is beside it");
}

/** Only its owner may read a copy while it is made: it holds personal data. */
export const PRIVATE_MODE = 0o600;

/** Makes an empty file, into which SQLite copies as into none. @throws {Error} EEXIST */
export function createPrivateFile(path: string): void {
  writeFileSync(path, "", { mode: PRIVATE_MODE, flag: "wx" });
}

/**
 * Gives a copy the owner and the rights of the database that it is of, or takes the place of. Only root may
 * give a file away.
 */
export function copyOwnership(copy: string, original: string): void {
  const { uid, gid, mode } = statSync(original);
  if (process.getuid?.() === 0) chownSync(copy, uid, gid);
  chmodSync(copy, mode & 0o777);
}

/**
 * A second name for a file; a copy of it where the disk has no second names.
 * @throws {AppError} operator when there is such a file
 */
export function linkOrCopy(path: string, new_path: string): void {
  try {
    linkSync(path, new_path);
  } catch (error) {
    if (systemCode(error) === "EEXIST") fail("operator", "there is such a file already");
    copyFileSync(path, new_path, constants.COPYFILE_EXCL);
  }
}

/** Puts a whole file where there is none. @throws {AppError} operator when there is one */
export function publish(temporary_path: string, path: string): void {
  sync(temporary_path);
  linkOrCopy(temporary_path, path);
  rmSync(temporary_path);
  try {
    sync(dirname(resolve(path)));
  } catch (error) {
    // The name may be lost in a power cut: who tries again must not find the file.
    rmSync(path);
    throw error;
  }
}

/** Puts a whole, synced file in the place of another: at every moment one of them is there. */
export function replaceFile(temporary_path: string, path: string): void {
  renameSync(temporary_path, path);
  sync(dirname(resolve(path)));
}

/** Removes a database that was a draft, with all that is beside it. */
export function discard(path: string): void {
  for (const suffix of ["", ...SIDECAR_SUFFIXES]) rmSync(path + suffix, { force: true });
}
