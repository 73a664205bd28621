/** Disks of a known size, records that fill them, and the health of a server on one. */
import { Database } from "bun:sqlite";
import { expect } from "bun:test";
import { closeSync, openSync, writeSync } from "node:fs";
import { CHECKPOINT_PAGES } from "../../src/sqlite/file/connection.ts";
import type { TestServer } from "../http/server.ts";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";

const succeeds = (...command: string[]) => Bun.spawnSync(command, { stderr: "ignore" }).success;

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

/** The health check reuses its last result for up to five seconds. */
const TIMEOUT_MS = 40_000;

export async function untilHealth(server: TestServer, wanted: number): Promise<void> {
  const deadlineMs = performance.now() + TIMEOUT_MS;
  for (;;) {
    const { status } = await server.call("GET", "/health", { token: null });
    if (status === wanted) return;
    if (performance.now() > deadlineMs) throw new Error(`health stays at ${status}`);
    await Bun.sleep(50);
  }
}
