import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface TemporaryDirectory extends Disposable {
  readonly path: string;
  /** The path of a file of this name in the folder. */
  at(name: string): string;
}

/** A temporary folder of its own, gone when it is disposed of. */
export function makeDirectory(): TemporaryDirectory {
  const path = mkdtempSync(join(tmpdir(), "user-api-"));
  return {
    path,
    at: (name) => join(path, name),
    [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }),
  };
}
