/** What a command that writes beside a server learns of its archive: the time of the lock file says how far that is. */
import { existsSync, statSync, utimesSync } from "node:fs";
import type { ArchivedWrite } from "../../domain/archive.ts";
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

/** @see Backend.watchArchive */
export function watchArchive(databaseUrl: string): () => Promise<ArchivedWrite> {
  const path = resolveDatabase(databaseUrl, false);
  const inode = () => statSync(path, { throwIfNoEntry: false })?.ino;
  const isArchived = () => existsSync(path) && isServed(path) && readMarker(path) !== null;
  const opened = inode();
  const wasArchived = isArchived();
  return async () => {
    const writtenMs = Date.now();
    for (let waitedMs = 0; ; waitedMs += POLL_MS) {
      if (inode() !== opened || readMarker(path)?.isCopy) return "lost";
      if (!isArchived()) return wasArchived ? "behind" : "none";
      if (statSync(lockPath(path)).mtimeMs > writtenMs) return "archived";
      if (waitedMs >= TIMEOUT_MS) return "behind";
      await Bun.sleep(POLL_MS);
    }
  };
}
