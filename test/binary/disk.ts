/** Disks of a known size, and records that fill them. */
import { expect } from "bun:test";
import { closeSync, openSync, writeSync } from "node:fs";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";

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

/** Writes a file until there is no space left, not even for one page. */
export function fillDisk(path: string): void {
  const file = openSync(path, "w");
  try {
    for (;;) writeSync(file, "x".repeat(4096));
  } catch (error) {
    expect(error).toMatchObject({ code: "ENOSPC" });
  } finally {
    closeSync(file);
  }
}

/** 25 KB, the most that a user can have. */
export const largeMetadata: Readonly<Record<string, string>> = Object.fromEntries(
  Array.from({ length: 50 }, (_, at) => [`note ${at}`, "n".repeat(500)]),
);
