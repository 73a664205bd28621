/**
 * Temporary files. A file gets its final name when it is complete and on disk. Until then its name, or that of its
 * directory, contains the id of the process that writes it, so that a later run can remove what killed processes left.
 */
import {
  closeSync,
  existsSync,
  fsyncSync,
  linkSync,
  lstatSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
} from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { systemCode } from "./error.ts";

/** The target, the process id, and a random part. */
const TEMPORARY = /^(?<target>.+)\.user-api-(?<pid>\d+)-[0-9a-f]{8}\.partial$/;

/**
 * Minimum age at which the files of other targets are removed. Each container has its own process ids, so a live
 * process of another container can look dead. It would have modified its file within this time.
 */
const MIN_AGE_MS = 3_600_000;

function isAlive(pid: number): boolean {
  // In a container the id is often 1. Then the file belongs to an earlier process with the same id.
  if (pid === process.pid) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return systemCode(error) === "EPERM";
  }
}

/** @returns when the file, or one in the directory, was last modified; `null` if this process must not remove it */
function lastModifiedMs(path: string): number | null {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats?.isDirectory() !== true) return stats?.mtimeMs ?? null;
  // The owner of a directory could exchange it while it is removed.
  if (stats.uid !== process.geteuid?.()) return null;
  const files = readdirSync(path).map((name) => lastModifiedMs(join(path, name)) ?? 0);
  return Math.max(stats.mtimeMs, ...files);
}

function findStale(path: string): string[] {
  const directory = dirname(resolve(path));
  return readdirSync(directory).flatMap((name) => {
    const { target, pid } = TEMPORARY.exec(name)?.groups ?? {};
    if (target === undefined || isAlive(Number(pid))) return [];
    const file = join(directory, name);
    const modifiedMs = lastModifiedMs(file);
    if (modifiedMs === null) return [];
    return target === basename(path) || Date.now() - modifiedMs > MIN_AGE_MS ? [file] : [];
  });
}

/** Removes the temporary files of this target that this process and killed ones have left. Does not fail. */
export function removeTemporary(path: string): void {
  try {
    for (const file of findStale(path)) rmSync(file, { recursive: true, force: true });
  } catch {
    // A file that cannot be removed must not prevent this run. A later run tries again.
  }
}

/**
 * Removes the temporary files of killed processes in the directory of the target. If it removes the file of a live
 * process in another container, that process fails, because the name is never used again.
 * @returns a new temporary name
 */
export function claimTemporary(path: string): string {
  removeTemporary(path);
  return `${path}.user-api-${process.pid}-${crypto.randomUUID().slice(0, 8)}.partial`;
}

/** Flushes a file, or the entries of a directory, to disk. */
export function fsyncPath(path: string): void {
  const descriptor = openSync(path, "r");
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/**
 * Gives a complete, synced file its name, unless a file has it.
 * @returns whether no file had the name
 */
export function publishNew(temporaryPath: string, path: string): boolean {
  try {
    linkSync(temporaryPath, path);
  } catch (error) {
    if (systemCode(error) === "EEXIST" || existsSync(path)) return false;
    // Some file systems have no hard links.
    renameSync(temporaryPath, path);
    return true;
  }
  rmSync(temporaryPath);
  return true;
}
