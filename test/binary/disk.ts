/** Disks of a known size, and records that fill them. */
import { makeDirectory, type TemporaryDirectory } from "../directory.ts";

export function succeeds(...command: string[]): boolean {
  return Bun.spawnSync(command, { stderr: "ignore" }).success;
}

/** @returns a directory on a file system in memory; `null` if it cannot be mounted */
export function mountDisk(bytes: number): TemporaryDirectory | null {
  const directory = makeDirectory();
  if (!succeeds("mount", "-t", "tmpfs", "-o", `size=${bytes}`, "tmpfs", directory.path)) {
    directory[Symbol.dispose]();
    return null;
  }
  return {
    ...directory,
    [Symbol.dispose]() {
      succeeds("umount", "--lazy", directory.path);
      directory[Symbol.dispose]();
    },
  };
}

/** 25 KB, the most that a user can have. */
export const largeMetadata: Readonly<Record<string, string>> = Object.fromEntries(
  Array.from({ length: 50 }, (_, at) => [`note ${at}`, "n".repeat(500)]),
);
