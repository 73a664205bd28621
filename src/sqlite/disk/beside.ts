/** Whether the archive has what a command has written. */
import { statSync } from "node:fs";
import { fail } from "../../base/error.ts";
import { resolveDatabase } from "../file/files.ts";
import { isServed } from "../file/server-lock.ts";
import { archivedUntilMs, readMarker } from "./marker.ts";

/** How long a command waits, as a client does. */
const TIMEOUT_MS = 5_000;
const POLL_MS = 20;

const LOST = "another server has taken over, and may lack what was written: run the command there";

/** @see Backend.watchArchive */
export function watchArchive(databaseUrl: string): () => Promise<boolean> {
  const path = resolveDatabase(databaseUrl, false);
  const inode = () => statSync(path, { throwIfNoEntry: false })?.ino;
  const opened = inode();
  const isArchived = readMarker(path) !== null;
  return async () => {
    const writtenMs = Date.now();
    const notedMs = archivedUntilMs(path);
    for (let waitedMs = 0; ; waitedMs += POLL_MS) {
      if (inode() !== opened || readMarker(path)?.isCopy)
        fail("operator", `Cannot use ${databaseUrl}: ${LOST}`);
      const untilMs = archivedUntilMs(path);
      // What was noted before may be from a clock that was ahead.
      if (!isArchived || (untilMs > writtenMs && untilMs !== notedMs)) return true;
      // Another server may have taken over from one that has ended.
      if (!isServed(path) || waitedMs >= TIMEOUT_MS) return false;
      await Bun.sleep(POLL_MS);
    }
  };
}
