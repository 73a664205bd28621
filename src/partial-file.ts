/**
 * A file gets its name when it is complete and on disk. Until then it has a temporary name with the id of the
 * process that writes it, so that a later run can remove the files of processes that were killed.
 */
import { closeSync, fsyncSync, openSync, readdirSync, rmSync, statSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { systemCode } from "./error.ts";

/** The target, the process, and what SQLite keeps next to a database. */
const PARTIAL = /^(?<target>.+)\.user-api-(?<pid>\d+)\.partial(?:-wal|-shm|-journal)?$/;

/**
 * Age from which the files of other targets are removed. Containers number their processes separately, so that
 * a process of another container can look dead from here; it would have written within this time.
 */
const MIN_AGE_MS = 3_600_000;

function isAlive(pid: number): boolean {
  // An earlier process of this id has ended. In a container it is often 1.
  if (pid === process.pid) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return systemCode(error) === "EPERM";
  }
}

function findStale(path: string): string[] {
  const directory = dirname(resolve(path));
  return readdirSync(directory).flatMap((name) => {
    const { target, pid } = PARTIAL.exec(name)?.groups ?? {};
    if (target === undefined || isAlive(Number(pid))) return [];
    const file = join(directory, name);
    const { mtimeMs = 0 } = statSync(file, { throwIfNoEntry: false }) ?? {};
    return target === basename(path) || Date.now() - mtimeMs > MIN_AGE_MS ? [file] : [];
  });
}

/**
 * Removes what killed processes have left in the directory of the target. A process may write one file of a
 * name at a time.
 * @returns the temporary name; the file does not exist
 */
export function claimPartial(path: string): string {
  try {
    for (const file of findStale(path)) rmSync(file, { force: true });
  } catch {
    // A file that cannot be removed is left to a later run: it must not prevent this one.
  }
  return `${path}.user-api-${process.pid}.partial`;
}

/** Until this returns, the content of a file, or the names in a directory, can be lost. */
export function sync(path: string): void {
  const descriptor = openSync(path, "r");
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
