import { appendFileSync, closeSync, openSync, readSync, rmSync } from "node:fs";
import { join } from "node:path";
import { claimTemporary } from "../../base/temporary-file.ts";
import { withFileErrors } from "../system/streams.ts";

/** Where a value is. */
export interface Place {
  readonly at: number;
  readonly bytes: number;
}

export type Spool = ReturnType<typeof openSpool>;

/** Keeps values as JSON in a file that has no name, so that it ends with the process: memory has only their places. */
export function openSpool(directory: string) {
  const attempt = <Result>(work: () => Result) =>
    withFileErrors("write", `a temporary file in ${directory}`, work);
  const path = claimTemporary(join(directory, "move-in"));
  const descriptor = attempt(() => openSync(path, "wx+", 0o600));
  rmSync(path);
  let [end, uses] = [0, 0];
  /** Otherwise the heap grows to several times of what is in it. With more orders, a collection takes longer. */
  function collectGarbage(): void {
    uses += 1;
    if (uses % (5000 * 2 ** Math.max(0, Math.floor(Math.log2(uses / 50_000)))) === 0) Bun.gc(true);
  }
  return {
    add(value: unknown): Place {
      const text = Buffer.from(JSON.stringify(value));
      const place = { at: end, bytes: text.length };
      attempt(() => appendFileSync(descriptor, text));
      end += text.length;
      collectGarbage();
      return place;
    },
    read<Value>({ at, bytes }: Place): Value {
      const text = Buffer.alloc(bytes);
      readSync(descriptor, text, 0, bytes, at);
      collectGarbage();
      return JSON.parse(text.toString());
    },
    [Symbol.dispose]: () => closeSync(descriptor),
  };
}
