/** Creates and replaces database files so that a path only ever names a complete file. */
import {
  accessSync,
  chmodSync,
  closeSync,
  constants,
  existsSync,
  lchownSync,
  linkSync,
  mkdirSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { dirname, resolve } from "node:path";
import { suffixes } from "../database-url.ts";
import { fail, systemCode } from "../error.ts";
import { claimTemporary, fsyncPath, publishNew } from "../temporary-file.ts";

/** Suffixes of the files that SQLite keeps next to a database. */
const SIDECAR_SUFFIXES = [suffixes.wal, suffixes.shm, suffixes.journal];

/** @returns the bytes of a file; 0 if there is none */
export function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

/**
 * Without the time of its attributes, which also changes when another name of the file is removed.
 * @returns a value that changes with every write to the file; empty if there is none
 */
export function fileState(path: string): string {
  const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
  if (stats === undefined) return "";
  const { dev, ino, size, mtimeNs } = stats;
  return [dev, ino, size, mtimeNs].join(":");
}

/** @returns the suffixes of the files that exist next to this path; the database itself may be missing */
export function sidecarsOf(path: string): readonly string[] {
  return SIDECAR_SUFFIXES.filter((suffix) => existsSync(path + suffix));
}

/**
 * Rejects an existing target before any work is done. `publish` detects a file that is created later.
 * @throws {AppError} operator if the file or a WAL next to it exists
 */
export function requireAbsent(path: string): void {
  if (statSync(path, { throwIfNoEntry: false }) !== undefined) {
    fail("operator", "the file already exists");
  }
  // SQLite would merge it into the new database.
  if (sidecarsOf(path).length > 0)
    fail("operator", "the WAL (`…-wal`) of another database is next to it: move it away");
}

/**
 * Rejects files that this process may not open. SQLite reports them in several ways, e.g. as an I/O error.
 * @param paths files that may be missing
 * @param mode `R_OK`, `W_OK`, or both, of the constants of `node:fs`
 * @throws {AppError} operator
 */
export function requirePermission(paths: readonly string[], mode: number): void {
  for (const path of paths.filter((each) => existsSync(each))) {
    try {
      accessSync(path, mode);
    } catch (error) {
      if (systemCode(error) !== "EACCES") throw error;
      const stats = statSync(path);
      const owner = `belongs to user ${stats.uid} with mode ${(stats.mode & 0o777).toString(8)}`;
      const own = `this process runs as user ${process.getuid?.()}`;
      fail("operator", `permission denied: ${path} ${owner}, and ${own}`);
    }
  }
}

/** Creates the directory of a file, and those that it is in, so that a power failure does not lose them. */
export function makeParents(path: string): void {
  const parent = dirname(resolve(path));
  const first = mkdirSync(parent, { recursive: true });
  if (first === undefined) return;
  for (let created = parent; created.length >= first.length; created = dirname(created))
    fsyncPath(dirname(created));
}

/** Only the owner may read an unfinished copy, because it contains personal data. */
export const PRIVATE_MODE = 0o600;

/** Creates an empty file. `vacuum into` accepts it as a target. @throws {Error} EEXIST if the file exists */
export function createPrivateFile(path: string): void {
  writeFileSync(path, "", { mode: PRIVATE_MODE, flag: "wx" });
}

/** Bytes per read of a whole file. */
const PART_BYTES = 2 ** 20;

/** @returns the content of a file, in parts that are valid until the next one */
function* partsOf(path: string): Generator<Uint8Array> {
  const part = Buffer.alloc(PART_BYTES);
  const descriptor = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    for (;;) {
      const bytes = readSync(descriptor, part);
      if (bytes === 0) return;
      yield part.subarray(0, bytes);
    }
  } finally {
    closeSync(descriptor);
  }
}

/** Copies a file. `copyFileSync` gives the copy the permissions of the original. @throws {Error} EEXIST */
export function copyPrivately(path: string, copy: string): void {
  const descriptor = openSync(copy, "wx", PRIVATE_MODE);
  try {
    for (const part of partsOf(path)) {
      for (let at = 0; at < part.length; ) at += writeSync(descriptor, part, at);
    }
  } finally {
    closeSync(descriptor);
  }
}

/** Errors of file systems that have no owners or permissions, and of those that do not trust root. */
const REFUSED = /^(EPERM|EACCES|EINVAL|ENOSYS|ENOTSUP|EOPNOTSUPP)$/;

/** @returns a warning if the file system refuses the change; otherwise `null` */
function tryToChange(change: () => void, warning: string): string | null {
  try {
    change();
    return null;
  } catch (error) {
    if (!REFUSED.test(systemCode(error))) throw error;
    return warning;
  }
}

/**
 * Gives a file the owner of another file or directory if this process is root: only root may do that.
 * @returns a warning if the file system refuses it; otherwise `null`
 */
export function copyOwner(path: string, original: string): string | null {
  if (process.getuid?.() !== 0) return null;
  const { uid, gid } = statSync(original);
  // Not `chown`: the owner of the directory could have put a link to any file there.
  const change = () => lchownSync(path, uid, gid);
  return tryToChange(change, `the file system does not let it have the owner of ${original}`);
}

/**
 * Gives a copy the permissions of the original, except those of other users, and its owner.
 * @returns a warning if the file system refuses it, in which case other users get no permission; otherwise `null`
 */
export function copyOwnership(copy: string, original: string): string | null {
  const change = () => chmodSync(copy, statSync(original).mode & 0o770);
  const warning = `the file system does not let it have the permissions of ${original}`;
  // Permissions are for the group of the original.
  return copyOwner(copy, original) ?? tryToChange(change, warning);
}

/**
 * Links a file to a new name, or copies it if the file system has no hard links.
 * @throws {AppError} operator if the new name exists
 */
export function linkOrCopy(path: string, newPath: string): void {
  try {
    linkSync(path, newPath);
  } catch (error) {
    if (systemCode(error) === "EEXIST") fail("operator", "the file already exists");
    const temporaryPath = claimTemporary(newPath);
    copyPrivately(path, temporaryPath);
    copyOwnership(temporaryPath, path);
    publish(temporaryPath, newPath);
  }
}

/**
 * Moves a complete file to its path and syncs both.
 * @throws {AppError} operator if the path exists
 */
export function publish(temporaryPath: string, path: string): void {
  fsyncPath(temporaryPath);
  if (!publishNew(temporaryPath, path)) fail("operator", "the file already exists");
  try {
    fsyncPath(dirname(resolve(path)));
  } catch (error) {
    // A power failure could lose the name. Remove the file, so that a retry does not find it.
    rmSync(path);
    throw error;
  }
}

/** Atomically replaces a file with a complete, synced one: the path always names one of the two. */
export function replaceFile(temporaryPath: string, path: string): void {
  renameSync(temporaryPath, path);
  fsyncPath(dirname(resolve(path)));
}

export function discard(path: string): void {
  for (const file of ["", ...SIDECAR_SUFFIXES].map((suffix) => path + suffix)) {
    // Below a file, Bun fails even with `force`.
    if (existsSync(file)) rmSync(file, { force: true });
  }
}
