import { appendFileSync, closeSync, openSync, readSync, rmSync } from "node:fs";
import { join } from "node:path";
import { claimTemporary } from "../../base/temporary-file.ts";
import { withFileErrors } from "../system/streams.ts";

/** Where a value is, in bytes. */
export interface Place {
  readonly at: number;
  readonly length: number;
}

export type Spool = ReturnType<typeof openSpool>;

/** Keeps values as JSON in a file that has no name, so that it ends with the process: memory has only their places. */
export function openSpool(directory: string) {
  const path = claimTemporary(join(directory, "spool"));
  const descriptor = withFileErrors("write", path, () => openSync(path, "wx+", 0o600));
  rmSync(path);
  let end = 0;
  return {
    add(value: unknown): Place {
      const bytes = Buffer.from(JSON.stringify(value));
      withFileErrors("write", path, () => appendFileSync(descriptor, bytes));
      const place = { at: end, length: bytes.length };
      end += bytes.length;
      return place;
    },
    read<Value>({ at, length }: Place): Value {
      const bytes = Buffer.allocUnsafe(length);
      readSync(descriptor, bytes, 0, length, at);
      return JSON.parse(bytes.toString());
    },
    [Symbol.dispose]: () => closeSync(descriptor),
  };
}
