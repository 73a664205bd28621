/**
 * Detects that a file of the open database was moved, deleted or replaced. SQLite keeps writing to its open
 * files, so later writes would be acknowledged and missing after a restart.
 */
import { closeSync, fstatSync, openSync, readSync, statSync } from "node:fs";
import { systemCode } from "../error.ts";
import { unavailableError } from "./errors.ts";

/** Samples per file, evenly spaced. Several make it likely that one of them hits an intermittent disk error. */
const SAMPLES = 8;
const SAMPLE_BYTES = 512;

export interface FileWatch {
  /**
   * Verifies that all files are in place, in 2 µs. Call it before a write begins and again before it is acknowledged.
   * @throws {AppError} unavailable if a file was moved, deleted or replaced
   */
  requireInPlace(): void;
  /** @returns whether no file was moved, deleted or replaced */
  isInPlace(): boolean;
  /** @returns whether the operating system can read samples of the database and its log */
  isReadable(): boolean;
  /** Call it after the database is closed. */
  close(): void;
}

/** @returns the device and inode, or the error code if the file cannot be examined */
function fileIdentity(path: string): string {
  try {
    const { dev, ino } = statSync(path);
    return `${dev}:${ino}`;
  } catch (error) {
    return systemCode(error);
  }
}

function describeChange(found: string): string {
  if (found === "ENOENT") return "has been moved or deleted";
  return found.includes(":")
    ? "has been replaced by another file"
    : `cannot be examined (${found})`;
}

/**
 * @param path path of the open database. Its files must exist.
 * @param onChange called with the problem when a file is missing or replaced, and with `null` when all are back
 */
export function watchFiles(path: string, onChange: (problem: string | null) => void): FileWatch {
  // The database, its write-ahead log, and the shared index of that log.
  const files = ["", "-wal", "-shm"].map((suffix) => ({
    path: path + suffix,
    identity: fileIdentity(path + suffix),
  }));
  // They stay open as long as the database: closing any descriptor of a file releases all locks that the process
  // holds on it, including those of SQLite. See https://www.sqlite.org/howtocorrupt.html, section 2.2.
  const descriptors = [openSync(path, "r"), openSync(`${path}-wal`, "r")];
  const sample = Buffer.alloc(SAMPLE_BYTES);
  let problem: string | null = null;

  function findProblem(): string | null {
    for (const file of files) {
      const found = fileIdentity(file.path);
      if (found !== file.identity) return `${file.path} ${describeChange(found)}`;
    }
    return null;
  }

  function isInPlace(): boolean {
    const before = problem;
    problem = findProblem();
    if ((problem === null) !== (before === null)) onChange(problem);
    return problem === null;
  }

  return {
    isInPlace,
    requireInPlace() {
      if (isInPlace()) return;
      throw unavailableError("written", new Error(problem ?? ""));
    },
    isReadable() {
      try {
        for (const descriptor of descriptors) {
          const { size } = fstatSync(descriptor);
          for (let at = 0; at < SAMPLES; at += 1) {
            readSync(descriptor, sample, 0, sample.length, Math.floor((at * size) / SAMPLES));
          }
        }
        return true;
      } catch {
        return false;
      }
    },
    close() {
      for (const descriptor of descriptors.splice(0)) closeSync(descriptor);
    },
  };
}
