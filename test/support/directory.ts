import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface TemporaryDirectory extends Disposable {
  readonly path: string;
  /** @returns the path of a file in the directory */
  at(name: string): string;
}

/** Creates a temporary directory, deleted when it is disposed of. */
export function makeDirectory(): TemporaryDirectory {
  const path = mkdtempSync(join(tmpdir(), "user-api-"));
  return {
    path,
    at: (name) => join(path, name),
    [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }),
  };
}
