/** What tells one server from another. */
import { readFileSync, statSync } from "node:fs";
import { lockPath } from "../file/server-lock.ts";

/** @returns the text of a file of Linux that has one line; `null` on other systems */
function readLine(path: string): string | null {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return null;
  }
}

export function holderName(databasePath: string): string {
  const host = readLine("/proc/sys/kernel/hostname");
  return host === null ? databasePath : `${host}:${databasePath}`;
}

/**
 * Call it while this process has the lock of the server.
 * @returns an identity that no other running process has; a process that had it before has ended
 */
export function lockIdentity(databasePath: string): string {
  const boot = readLine("/proc/sys/kernel/random/boot_id");
  if (boot === null) return crypto.randomUUID();
  const { dev, ino } = statSync(lockPath(databasePath), { bigint: true });
  return `${boot}:${dev}:${ino}`;
}
