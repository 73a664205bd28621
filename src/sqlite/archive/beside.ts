/** What a command that writes beside a server learns of its archive: the time of the lock file says how far that is. */
import { existsSync, statSync, utimesSync } from "node:fs";
import { fail } from "../../base/error.ts";
import { resolveDatabase } from "../file/files.ts";
import { isServed, lockPath } from "../file/server-lock.ts";
import { readMarker } from "./marker.ts";

/** How long a command waits, as a client does. */
const TIMEOUT_MS = 5_000;
const POLL_MS = 20;

/** Says that the archive has all commits up to this time. */
export function noteArchived(path: string, timeMs: number): void {
  try {
    utimesSync(lockPath(path), timeMs / 1000, timeMs / 1000);
  } catch {
    // The file is that of another user: commands say that they do not know.
  }
}

const LOST =
  "another server has taken over, and what was written may be lost: run the command again beside that server";

/** @see Backend.watchArchive */
export function watchArchive(databaseUrl: string): () => Promise<boolean> {
  const path = resolveDatabase(databaseUrl, false);
  const inode = () => statSync(path, { throwIfNoEntry: false })?.ino;
  const isArchived = () => existsSync(path) && isServed(path) && readMarker(path) !== null;
  const opened = inode();
  const wasArchived = isArchived();
  return async () => {
    const writtenMs = Date.now();
    for (let waitedMs = 0; ; waitedMs += POLL_MS) {
      if (inode() !== opened || readMarker(path)?.isCopy)
        fail("operator", `Cannot use ${databaseUrl}: ${LOST}`);
      if (!isArchived()) return !wasArchived;
      if (statSync(lockPath(path)).mtimeMs > writtenMs) return true;
      if (waitedMs >= TIMEOUT_MS) return false;
      await Bun.sleep(POLL_MS);
    }
  };
}
