import * as fs from "node:fs";
import { dirname, resolve } from "node:path";
import { databaseFiles } from "../../base/database-url.ts";
import { fail, fileProblem, problemOf, systemCode } from "../../base/error.ts";
import { claimTemporary, fsyncPath, publishNew } from "../../base/temporary-file.ts";
import { resolveLinks } from "../../base/trusted-path.ts";
import type { OutputStream } from "./system.ts";

const STDIN = 0;

const CHUNK_BYTES = 2 ** 18;

export function withFileErrors<Result>(verb: "read" | "write", name: string, work: () => Result) {
  try {
    return work();
  } catch (error) {
    const problem = fileProblem(error);
    if (problem === null) throw error;
    return fail("operator", `Cannot ${verb} ${name}: ${problem}`);
  }
}

/** A pipe can be read only once. @throws {AppError} operator */
export function requireFile(path: string): void {
  if (fs.statSync(path, { throwIfNoEntry: false })?.isFile()) return;
  fail("operator", `Cannot read ${path}: it is missing, or no regular file`);
}

/** @throws {AppError} operator, which names the file, instead of validation_failed */
export async function* inFile<Part>(
  path: string,
  parts: AsyncIterable<Part>,
): AsyncGenerator<Part> {
  try {
    yield* parts;
  } catch (error) {
    fail("operator", `Cannot read ${path}: ${problemOf(error)}`);
  }
}

/** Until the next attempt to write to a full non-blocking pipe. */
const RETRY_MS = 10;

/** Writes in a thread of Bun's pool: a full pipe blocks that thread only. @see WriteBytes */
export async function writeSome(descriptor: number, bytes: Uint8Array): Promise<number | null> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  fs.write(descriptor, bytes, (error, count) => (error === null ? resolve(count) : reject(error)));
  try {
    return await promise;
  } catch (error) {
    if (isReaderGone(error)) return null;
    if (systemCode(error) !== "EAGAIN") throw error;
    await Bun.sleep(RETRY_MS);
    return 0;
  }
}

/** Whether the reader of a pipe or a socket has closed it. That is not a failure, e.g. with `head`. */
function isReaderGone(error: unknown): boolean {
  return ["EPIPE", "ECONNRESET"].includes(systemCode(error));
}

export function openInput(path: string | null): AsyncIterable<Uint8Array> {
  // Opened once: a pipe would lose its writer.
  const descriptor =
    path === null ? STDIN : withFileErrors("read", path, () => fs.openSync(path, "r"));
  if (fs.fstatSync(descriptor).isDirectory())
    fail("operator", `Cannot read ${path ?? "stdin"}: it is a directory`);
  if (path === null) return Bun.stdin.stream();
  // Unlike the stream of Bun.file, this one can read any device.
  return fs.createReadStream(path, { fd: descriptor, highWaterMark: CHUNK_BYTES });
}

/** Waits for a slow reader. @throws {AppError} operator; output_closed if the reader has closed the descriptor */
export function writeOutput(name: string, descriptor: number, text: string): void {
  withFileErrors("write", name, () => {
    let bytes = Buffer.from(text);
    while (bytes.length > 0) {
      try {
        bytes = bytes.subarray(fs.writeSync(descriptor, bytes));
      } catch (error) {
        if (isReaderGone(error)) fail("output_closed", `the reader of ${name} has closed it`);
        if (systemCode(error) !== "EAGAIN") throw error;
        Bun.sleepSync(1);
      }
    }
  });
}

function isSameFile(one: string, other: string): boolean {
  if (resolve(one) === resolve(other)) return true;
  const [first, second] = [one, other].map((path) => fs.statSync(path, { throwIfNoEntry: false }));
  return first !== undefined && first.ino === second?.ino && first.dev === second.dev;
}

function failIfExists(path: string): never {
  const advice = "delete it, or choose another name";
  return fail("operator", `Cannot write ${path}: the file already exists; ${advice}`);
}

/** @param target the path without links; the file has another name until it is complete */
function openFile(path: string, target: string, force: boolean): OutputStream {
  const written = claimTemporary(target);
  const descriptor = withFileErrors("write", path, () => fs.openSync(written, "wx"));
  let open = true;
  return {
    write: (text) => writeOutput(path, descriptor, text),
    finish: () =>
      withFileErrors("write", path, () => {
        fs.fsyncSync(descriptor);
        fs.closeSync(descriptor);
        open = false;
        if (force) fs.renameSync(written, target);
        else if (!publishNew(written, target)) failIfExists(path);
        // Before this, a power failure can undo the rename.
        fsyncPath(dirname(resolve(target)));
      }),
    [Symbol.dispose]() {
      if (open) fs.closeSync(descriptor);
      // A complete file has its name.
      fs.rmSync(written, { force: true });
    },
  };
}

export function openOutput(path: string, force: boolean, databaseUrl: string): OutputStream {
  if (path === "") fail("usage", "The name of the file is empty");
  if (databaseFiles(databaseUrl).some((file) => isSameFile(path, file)))
    fail("operator", `Cannot write ${path}: it belongs to the database`);
  const stats = fs.statSync(path, { throwIfNoEntry: false });
  const target = withFileErrors("write", path, () => resolveLinks(path));
  // A device or a pipe is written in place.
  if (stats?.isFile() === false) {
    const descriptor = withFileErrors("write", path, () => fs.openSync(path, "w"));
    const write = (text: string) => writeOutput(path, descriptor, text);
    return { write, finish() {}, [Symbol.dispose]() {} };
  }
  if (stats !== undefined && !force) failIfExists(path);
  return openFile(path, target, force);
}
