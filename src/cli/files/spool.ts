import { appendFileSync, closeSync, openSync, readSync, rmSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { databaseFiles } from "../../base/database-url.ts";
import { claimTemporary } from "../../base/temporary-file.ts";
import { withFileErrors } from "../system/streams.ts";
import type { CommandSystem } from "../system/system.ts";

/** Where a value is, in bytes. */
export interface Place {
  readonly at: number;
  readonly length: number;
}

/** Of values between two collections of garbage. */
const MIN_BYTES = 4 * 2 ** 20;

export type Spool = ReturnType<typeof openSpool>;

/**
 * Keeps values as JSON in a file next to the database, or in `TMPDIR`: memory has only their places. The file has no name,
 * so that it ends with the process.
 */
export function openSpool({ config, environment }: CommandSystem) {
  const [database] = databaseFiles(config.databaseUrl);
  const { TMPDIR: temporary = "/tmp" } = environment;
  const directory = database === undefined ? temporary : dirname(resolve(database));
  const path = claimTemporary(join(directory, "spool"));
  const descriptor = withFileErrors("write", path, () => openSync(path, "wx+", 0o600));
  rmSync(path);
  let [end, passed] = [0, 0];
  /** Otherwise the heap grows to several times of what is in it. With a larger file, a collection takes longer. */
  function count(bytes: number): void {
    passed += bytes;
    if (passed < Math.max(MIN_BYTES, end / 8)) return;
    passed = 0;
    Bun.gc(true);
  }
  return {
    add(value: unknown): Place {
      const bytes = Buffer.from(JSON.stringify(value));
      withFileErrors("write", path, () => appendFileSync(descriptor, bytes));
      const place = { at: end, length: bytes.length };
      end += bytes.length;
      count(bytes.length);
      return place;
    },
    read<Value>({ at, length }: Place): Value {
      const bytes = Buffer.allocUnsafe(length);
      readSync(descriptor, bytes, 0, length, at);
      count(length);
      return JSON.parse(bytes.toString());
    },
    [Symbol.dispose]: () => closeSync(descriptor),
  };
}
