/** What tells one server from another. */
import { readFileSync, statSync } from "node:fs";
import { hostname } from "node:os";
import { lockPath } from "../file/server-lock.ts";

/** @returns the name of this server for operators */
export function holderName(databasePath: string): string {
  return `${hostname()}:${databasePath}`;
}

/** @returns what only this boot of the machine has; random on other systems than Linux */
function bootIdentity(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    return crypto.randomUUID();
  }
}

/**
 * Call it while this process has the lock of the server.
 * @returns an identity that no other running process has; a process that had it before has ended
 */
export function lockIdentity(databasePath: string): string {
  const { dev, ino } = statSync(lockPath(databasePath), { bigint: true });
  return `${bootIdentity()}:${dev}:${ino}`;
}
