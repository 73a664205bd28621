import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";

export function hashOf(path: string): string {
  return Bun.CryptoHasher.hash("sha256", readFileSync(path), "hex");
}

/**
 * Changes with every file that is created, changed or removed in a directory, even if it is restored afterwards.
 * @returns the names and contents of all files, their times, and that of the directory
 */
export function traceOf(directory: string): unknown {
  const timeOf = (path: string) => statSync(path, { bigint: true }).mtimeNs;
  const files = readdirSync(directory).sort();
  const contents = files.map((name) => [
    name,
    timeOf(join(directory, name)),
    hashOf(join(directory, name)),
  ]);
  return { time: timeOf(directory), contents };
}
