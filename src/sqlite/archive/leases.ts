/** What tells one server from another, and the lease under which a generation is written. */
import { readFileSync, statSync } from "node:fs";
import type { Lease } from "../../lease.ts";
import { lockPath } from "../server-lock.ts";

/** @returns the text of a file of Linux that has one line; `null` on other systems */
function readLine(path: string): string | null {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return null;
  }
}

/** @returns the name of this server for operators */
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

export interface Terms {
  /**
   * Waits for the lease, unless this process has it.
   * @returns the number of the generation, which is that of the lease, and its name, which is the id of the lease
   */
  acquire(signal: AbortSignal): Promise<{ readonly number: number; readonly name: string }>;
  isHeld(): boolean;
  /** Gives the lease up. The next generation has another. Resolves when it is released */
  end(): Promise<void>;
}

/**
 * @param newLease returns a lease on the archive that nothing else uses
 * @param onLost called with the reason when the archive is that of another server
 */
export function createTerms(newLease: () => Lease, onLost: (reason: string) => void): Terms {
  let current: Lease | null = null;
  /** Resolves when the last lease is released. */
  let released: Promise<void> = Promise.resolve();

  function begin(): Lease {
    const lease = newLease();
    void lease.whenLost.then((holder) => {
      if (lease !== current) return;
      onLost(
        holder === null ? "the object `lease` was deleted" : `${holder} has taken over the archive`,
      );
    });
    return lease;
  }

  return {
    async acquire(signal) {
      await released;
      current ??= begin();
      const { id: name } = current;
      return { number: await current.acquire(signal), name };
    },
    isHeld: () => current?.isHeld() === true,
    end() {
      if (current !== null) released = current.release();
      current = null;
      return released;
    },
  };
}
