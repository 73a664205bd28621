/**
 * Notices that a file of the open database has been moved, deleted or replaced. SQLite goes on writing to the
 * files that it has open, so what it acknowledges from then on would be gone after a restart.
 */
import { statSync } from "node:fs";
import { AppError, systemCode } from "../error.ts";

/** The database, its write-ahead log, and the index of that log, which connections share. */
const SUFFIXES = ["", "-wal", "-shm"] as const;

export interface FileWatch {
  /**
   * Looks at the files: 2 µs. To be called before a write begins and again before it is acknowledged.
   * @throws {AppError} unavailable if one of them is not where it was opened
   */
  check(): void;
  /** Looks at the files. */
  isInPlace(): boolean;
}

export interface FileWatchOptions {
  /** Of the database, whose files exist from now on. */
  readonly path: string;
  /** Called once when a file is gone, with what happened, and with `null` when all are back. */
  readonly onChange: (problem: string | null) => void;
}

/** Identifies a file whatever its name; the code of the error if there is none, or it cannot be examined. */
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

export function watchFiles({ path, onChange }: FileWatchOptions): FileWatch {
  const files = SUFFIXES.map((suffix) => ({
    path: path + suffix,
    identity: fileIdentity(path + suffix),
  }));
  let problem: string | null = null;

  function findProblem(): string | null {
    for (const file of files) {
      const found = fileIdentity(file.path);
      if (found === file.identity) continue;
      return `${file.path} ${describeChange(found)}`;
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
    check() {
      if (isInPlace()) return;
      const error = new AppError("unavailable", "the database cannot be written at the moment");
      error.cause = new Error(problem ?? "");
      throw error;
    },
  };
}
