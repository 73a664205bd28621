/** Creates and replaces database files so that a path only ever names a complete file. */
import * as fs from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { suffixes } from "../../base/database-url.ts";
import { fail, systemCode } from "../../base/error.ts";
import { isMountPoint } from "../../base/mounts.ts";
import { claimTemporary, fsyncPath, publishNew } from "../../base/temporary-file.ts";
import { isTimeInName, timeInName } from "../../base/time-in-name.ts";
import { requireOwnNeighbours, resolveLinks } from "../../base/trusted-path.ts";

const SIDECAR_SUFFIXES = [suffixes.wal, suffixes.shm, suffixes.journal];

/** @returns the bytes that users other than root can still write; `null` if the directory has been moved away */
export function freeBytesOf(path: string): number | null {
  try {
    const { bavail, bsize } = fs.statfsSync(dirname(path));
    return bavail * bsize;
  } catch {
    return null;
  }
}

/** @returns 0 if there is no file */
export function sizeOf(path: string): number {
  return fs.statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

/** @returns what changes with every write to the file, but not when another name of it is removed; empty if there is none */
export function fileState(path: string): string {
  const stats = fs.statSync(path, { bigint: true, throwIfNoEntry: false });
  if (stats === undefined) return "";
  const { dev, ino, size, mtimeNs } = stats;
  return [dev, ino, size, mtimeNs].join(":");
}

/** @returns the suffixes of the files that exist next to this path; the database itself may be missing */
export function sidecarsOf(path: string): readonly string[] {
  return SIDECAR_SUFFIXES.filter((suffix) => fs.existsSync(path + suffix));
}

/** `publish` detects a later one. @throws {AppError} operator if the file or a WAL exists, or one next to it is not trusted */
export function requireAbsent(path: string): void {
  requireOwnNeighbours(resolveLinks(path));
  if (fs.statSync(path, { throwIfNoEntry: false }) !== undefined)
    fail("operator", "the file already exists");
  // SQLite would merge it into the new database.
  if (sidecarsOf(path).length > 0)
    fail("operator", "the WAL (`…-wal`) of another database is next to it: move it away");
}

/** SQLite reports those that it may not open in several ways, e.g. as an I/O error. @throws {AppError} operator */
export function requirePermission(paths: readonly string[], mode = fs.constants.R_OK): void {
  for (const path of paths.filter((each) => fs.existsSync(each))) {
    try {
      fs.accessSync(path, mode);
    } catch (error) {
      if (systemCode(error) !== "EACCES") throw error;
      const stats = fs.statSync(path);
      const owner = `belongs to user ${stats.uid} with mode ${(stats.mode & 0o777).toString(8)}`;
      const own = `this process runs as user ${process.getuid?.()}`;
      fail("operator", `permission denied: ${path} ${owner}, and ${own}`);
    }
  }
}

/** Creates the directory of a file, and those that it is in, so that a power failure does not lose them. */
export function makeParents(path: string): void {
  const parent = dirname(resolve(path));
  const first = fs.mkdirSync(parent, { recursive: true });
  if (first === undefined) return;
  for (let created = parent; created.length >= first.length; created = dirname(created))
    fsyncPath(dirname(created));
}

/** Only the owner may read an unfinished copy, because it contains personal data. */
export const PRIVATE_MODE = 0o600;

/** @see https://www.sqlite.org/fileformat2.html#the_database_header */
const HEADER_BYTES = 100;
const MAGIC = "SQLite format 3\0";

/** @returns `null` for another file. `usesWal` is false for a backup; `end` of the last page is `NaN` in a damaged header */
export function readHeader(path: string) {
  const descriptor = fs.openSync(path, fs.constants.O_RDONLY | fs.constants.O_NOFOLLOW);
  try {
    const header = Buffer.alloc(HEADER_BYTES);
    fs.readSync(descriptor, header);
    if (!header.toString("latin1").startsWith(MAGIC)) return null;
    // The two bytes 0, 1 stand for 65,536.
    const pageBytes = header.readUInt16LE(16) << 8;
    const counted = header.readUInt32BE(28);
    // As SQLite does: a program that does not know the number of pages has not repeated the change counter.
    const isCounted = counted > 0 && header.readUInt32BE(24) === header.readUInt32BE(92);
    const pages = isCounted ? counted : Math.floor(fs.fstatSync(descriptor).size / pageBytes);
    const end = pages * pageBytes;
    return { applicationId: header.readUInt32BE(68), usesWal: header[18] === 2, pageBytes, end };
  } finally {
    fs.closeSync(descriptor);
  }
}

/**
 * The one place that decides whether the files of a path are used: call it first. @returns the path without links
 * @throws {AppError} operator if a link or a file next to the database is not trusted, or the file is mounted alone
 */
export function resolveDatabase(databasePath: string, isRead: boolean): string {
  const path = resolveLinks(databasePath);
  requireOwnNeighbours(path);
  // A backup has no other files.
  const isAlone = isMountPoint(path) && fs.statSync(path).isFile();
  if (isAlone && !(isRead && readHeader(path)?.usesWal === false)) {
    const where = "the file is mounted without its directory, where recent writes are";
    fail("operator", `${where}: mount the directory`);
  }
  return path;
}

/** Errors of file systems that have no owners or permissions, and of those that do not trust root. */
const REFUSED = /^(EPERM|EACCES|EINVAL|ENOSYS|ENOTSUP|EOPNOTSUPP)$/;

/** Copies permissions but those of others and, as root, the owner. @returns a warning if the file system refuses it */
export function copyOwnership(copy: string, original: string): string | null {
  const { uid, gid, mode } = fs.statSync(original);
  try {
    // Not `chown`: the owner of the directory could have put a link to any file there.
    if (process.getuid?.() === 0) fs.lchownSync(copy, uid, gid);
    // Permissions are for the group of the original.
    fs.chmodSync(copy, mode & 0o770);
    return null;
  } catch (error) {
    if (!REFUSED.test(systemCode(error))) throw error;
    return `the file system refuses the owner and the permissions of ${original}`;
  }
}

/** Copies the file if the file system has no hard links. @throws {AppError} operator if the new name exists */
export function linkOrCopy(path: string, newPath: string): void {
  try {
    fs.linkSync(path, newPath);
  } catch (error) {
    if (systemCode(error) === "EEXIST") fail("operator", "the file already exists");
    const temporaryPath = claimTemporary(newPath);
    fs.copyFileSync(path, temporaryPath, fs.constants.COPYFILE_EXCL);
    copyOwnership(temporaryPath, path);
    publish(temporaryPath, newPath);
  }
}

/** Moves a complete file to its path and syncs both. @throws {AppError} operator as {@link requireAbsent} */
export function publish(temporaryPath: string, path: string): void {
  fsyncPath(temporaryPath);
  // Others may have created a file next to it meanwhile.
  requireAbsent(path);
  if (!publishNew(temporaryPath, path)) fail("operator", "the file already exists");
  try {
    fsyncPath(dirname(resolve(path)));
  } catch (error) {
    // A power failure could lose the name. Remove the file, so that a retry does not find it.
    fs.rmSync(path);
    throw error;
  }
}

/** More than a request writes: a file system that is almost full counts as full. */
const PROBE_BYTES = 2 ** 16;

export function requireWritable(databasePath: string): void {
  try {
    // A name that no unfinished copy of this process has, which would be removed.
    const path = claimTemporary(`${databasePath}-probe`);
    try {
      fs.writeFileSync(path, new Uint8Array(PROBE_BYTES), { flag: "wx", mode: PRIVATE_MODE });
      fsyncPath(path);
    } finally {
      fs.rmSync(path, { force: true });
    }
  } catch (error) {
    fail("unavailable", `waiting for its disk, which cannot be written (${systemCode(error)})`);
  }
}

export function discard(path: string): void {
  // A log without its database would be refused.
  for (const file of [...SIDECAR_SUFFIXES, ""].map((suffix) => path + suffix)) {
    // Below a file, Bun fails even with `force`.
    if (fs.existsSync(file)) fs.rmSync(file, { force: true });
  }
}

export function discardWal(path: string): void {
  for (const suffix of [suffixes.wal, suffixes.shm]) fs.rmSync(path + suffix, { force: true });
}

/** Renames a closed database that has diverged from its archive, so that the server restores it. Only one is kept. */
export function setAside(path: string, now: Date): string {
  const directory = dirname(resolve(path));
  const stem = `${basename(path)}-diverged-`;
  for (const entry of fs.readdirSync(directory, { withFileTypes: true })) {
    const [before, time = ""] = entry.name.split(stem);
    // Not what somebody has exported under a similar name.
    if (entry.isFile() && before === "" && isTimeInName(time)) discard(join(directory, entry.name));
  }
  const target = join(directory, stem + timeInName(now));
  for (const suffix of ["", ...sidecarsOf(path)]) fs.renameSync(path + suffix, target + suffix);
  fsyncPath(directory);
  return target;
}
