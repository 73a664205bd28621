/** The files and standard streams of the commands that move data. */
import {
  closeSync,
  existsSync,
  fstatSync,
  fsyncSync,
  openSync,
  realpathSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
  write,
  writeSync,
} from "node:fs";
import { dirname, resolve } from "node:path";
import { fail, systemCode } from "../error.ts";
import { claimPartial, sync } from "../partial-file.ts";
import type { InputStream, OutputStream } from "./context.ts";

const STDIN = 0;
const STDOUT = 1;

/** What an error's code means to an operator. */
const file_errors: Record<string, string> = {
  ENOENT: "there is no such file or folder",
  EACCES: "there is no permission",
  EISDIR: "it is a folder",
  ENOTDIR: "a part of its path is not a folder",
  ENOSPC: "the disk is full",
  EROFS: "the disk is read-only",
  EEXIST: "its temporary file already exists",
  EIO: "the disk fails",
};

/** @throws {AppError} operator where the operator can do something about it, else the error itself */
function withFileErrors<Result>(verb: "read" | "write", name: string, work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    const message = file_errors[systemCode(error)];
    if (message === undefined) throw error;
    return fail("operator", `Cannot ${verb} ${name}: ${message}`);
  }
}

/** A full pipe is waited for. @throws when the descriptor takes no more for good */
export function writeFully(descriptor: number, text: string): void {
  let bytes = Buffer.from(text);
  while (bytes.length > 0) {
    try {
      bytes = bytes.subarray(writeSync(descriptor, bytes));
    } catch (error) {
      if (systemCode(error) !== "EAGAIN") throw error;
      Bun.sleepSync(1);
    }
  }
}

/** A full pipe that does not block is tried again after this time. */
const RETRY_MS = 10;

/** Writes in a thread of Bun's pool: a pipe whose reader stands still blocks that thread only. @see WriteBytes */
export async function writeSome(descriptor: number, bytes: Uint8Array): Promise<number | null> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  write(descriptor, bytes, (error, count) => (error === null ? resolve(count) : reject(error)));
  try {
    return await promise;
  } catch (error) {
    if (isReaderGone(error)) return null;
    if (systemCode(error) !== "EAGAIN") throw error;
    await Bun.sleep(RETRY_MS);
    return 0;
  }
}

/** A reader that has gone has seen what it wanted: of a pipe, or of a socket in which there was still something. */
export function isReaderGone(error: unknown): boolean {
  return ["EPIPE", "ECONNRESET"].includes(systemCode(error));
}

function sizeOf(stats: Stats): number | null {
  return stats.isFile() ? stats.size : null;
}

/** @see Io */
export function openInput(path: string | null): InputStream {
  if (path === null) return { chunks: Bun.stdin.stream(), size: sizeOf(fstatSync(STDIN)) };
  const stats = withFileErrors("read", path, () => {
    // Opened to learn now whether it can be.
    closeSync(openSync(path, "r"));
    return statSync(path);
  });
  if (stats.isDirectory()) fail("operator", `Cannot read ${path}: it is a folder`);
  return { chunks: Bun.file(path).stream(), size: sizeOf(stats) };
}

/** @param finish called once, when all has been written */
function createOutputStream(name: string, descriptor: number, finish: () => void): OutputStream {
  return {
    write: (text) =>
      withFileErrors("write", name, () => {
        try {
          writeFully(descriptor, text);
          return true;
        } catch (error) {
          if (isReaderGone(error)) return false;
          throw error;
        }
      }),
    finish: () => withFileErrors("write", name, finish),
    [Symbol.dispose]() {},
  };
}

/** @see Io */
export function openOutput(path: string | null): OutputStream {
  if (path === null) return createOutputStream("the output", STDOUT, () => {});
  // A link is followed, and what is no file, as /dev/null or a named pipe, is written as it is.
  const target = existsSync(path) ? realpathSync(path) : path;
  const in_place = existsSync(target) && !statSync(target).isFile();
  const written = in_place ? target : claimPartial(target);
  const descriptor = withFileErrors("write", path, () => openSync(written, in_place ? "w" : "wx"));
  let open = true;
  let done = in_place;
  return {
    ...createOutputStream(path, descriptor, () => {
      if (!in_place) fsyncSync(descriptor);
      closeSync(descriptor);
      open = false;
      if (in_place) return;
      renameSync(written, target);
      done = true;
      // Until then a power cut takes the name away again.
      sync(dirname(resolve(target)));
    }),
    [Symbol.dispose]() {
      if (open) closeSync(descriptor);
      if (!done) rmSync(written, { force: true });
    },
  };
}
