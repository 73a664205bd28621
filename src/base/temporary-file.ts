/**
 * Temporary files. A file gets its final name when it is complete and on disk. Until then its name, or that of its
 * directory, contains the id of the process that writes it, so that a later run can remove what killed processes left.
 */
import * as fs from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { systemCode } from "./error.ts";

const TEMPORARY = /^(?<target>.+)\.user-api-(?<pid>\d+)-[0-9a-f]{8}\.partial$/;

const DATABASE = "new.db";

/** Age at which files of others are removed: a process of another container looks dead, but modifies its file more often. */
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

function findStale(path: string): string[] {
  const directory = dirname(resolve(path));
  return fs.readdirSync(directory).flatMap((name) => {
    const { target, pid } = TEMPORARY.exec(name)?.groups ?? {};
    if (target === undefined || isAlive(Number(pid))) return [];
    const file = join(directory, name);
    let stats = fs.lstatSync(file, { throwIfNoEntry: false });
    if (stats?.isDirectory()) {
      // Its owner could exchange it while it is removed.
      if (stats.uid !== process.geteuid?.()) return [];
      // The file is made after its directory.
      stats = fs.lstatSync(join(file, DATABASE), { throwIfNoEntry: false }) ?? stats;
    }
    const { mtimeMs = 0 } = stats ?? {};
    return target === basename(path) || Date.now() - mtimeMs > MIN_AGE_MS ? [file] : [];
  });
}

function removeQuietly(path: string): void {
  try {
    fs.rmSync(path, { recursive: true, force: true });
  } catch {
    // It must not prevent this run, or hide its error. A later run tries again.
  }
}

/** Removes the temporary files of this target that this process and killed ones have left. Does not fail. */
export function removeTemporary(path: string): void {
  try {
    findStale(path).forEach(removeQuietly);
  } catch {
    // The directory cannot be read.
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

/** Creates an empty database. Only this user may enter its directory: SQLite would apply a WAL that somebody puts next to it. */
export function makeTemporaryDatabase(target: string) {
  const directory = claimTemporary(target);
  fs.mkdirSync(directory, { mode: 0o700 });
  const path = join(directory, DATABASE);
  fs.writeFileSync(path, "", { mode: 0o600 });
  return { path, [Symbol.dispose]: () => removeQuietly(directory) };
}

/** Also the entries of a directory. */
export function fsyncPath(path: string): void {
  const descriptor = fs.openSync(path, "r");
  try {
    fs.fsyncSync(descriptor);
  } finally {
    fs.closeSync(descriptor);
  }
}

/** @param temporaryPath of a complete, synced file. @returns whether no file had the name */
export function publishNew(temporaryPath: string, path: string): boolean {
  try {
    fs.linkSync(temporaryPath, path);
  } catch (error) {
    if (systemCode(error) === "EEXIST" || fs.existsSync(path)) return false;
    // Some file systems have no hard links.
    fs.renameSync(temporaryPath, path);
    return true;
  }
  fs.rmSync(temporaryPath);
  return true;
}
