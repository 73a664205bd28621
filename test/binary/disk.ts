/** Disks of a known size, and records that fill them. */
import { Database } from "bun:sqlite";
import { expect } from "bun:test";
import { closeSync, openSync, writeSync } from "node:fs";
import { CHECKPOINT_PAGES } from "../../src/sqlite/file/connection.ts";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";

function succeeds(...command: string[]): boolean {
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

/** Writes so much from another connection that a checkpoint is due after the server's next commit. */
export function fillLog(database: string): void {
  using db = new Database(database);
  db.run("pragma wal_autocheckpoint = 0");
  db.run("pragma synchronous = off");
  // The server writes now and then as well, e.g. when a token was used.
  db.run("pragma busy_timeout = 5000");
  const rename = db.prepare("update users set name = ? where id = 1");
  for (let frame = 0; frame <= CHECKPOINT_PAGES; frame += 1) rename.run(`Name ${frame}`);
}

/** 25 KB, the most that a user can have. */
export const largeMetadata: Readonly<Record<string, string>> = Object.fromEntries(
  Array.from({ length: 50 }, (_, at) => [`note ${at}`, "n".repeat(500)]),
);
