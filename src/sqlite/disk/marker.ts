import { readFileSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { suffixes } from "../../base/database-url.ts";
import { fail, systemCode } from "../../base/error.ts";
import { claimTemporary, fsyncPath } from "../../base/temporary-file.ts";
import type { ArchiveMarker } from "../archive/machine.ts";
import { copyOwnership, PRIVATE_MODE, requirePermission, resolveDatabase } from "../file/files.ts";
import { isServed } from "../file/server-lock.ts";

/** How long a command waits for the archive, as a client does. */
const TIMEOUT_MS = 5_000;
const POLL_MS = 20;

const LOST = "another server has taken over, and may lack what was written: run the command there";

function inodeOf(path: string): string | null {
  return statSync(path, { bigint: true, throwIfNoEntry: false })?.ino.toString() ?? null;
}

export function markerPath(databasePath: string): string {
  return databasePath + suffixes.archive;
}

export function readMarker(databasePath: string): ArchiveMarker | null {
  const path = markerPath(databasePath);
  requirePermission([path]);
  try {
    const { next, ...marker } = JSON.parse(readFileSync(path, "utf8"));
    if (next !== undefined && next.inode === inodeOf(databasePath)) return next.marker;
    return marker.names === undefined ? null : marker;
  } catch (error) {
    if (systemCode(error) === "ENOENT" || error instanceof SyntaxError) return null;
    throw error;
  }
}

/** @param file that is to replace the database: the marker is valid from then on. Settle it afterwards */
export function writeMarker(databasePath: string, marker: ArchiveMarker, file = databasePath) {
  const path = markerPath(databasePath);
  const temporaryPath = claimTemporary(path);
  const next = { inode: inodeOf(file), marker };
  const stored = file === databasePath ? marker : { ...readMarker(databasePath), next };
  writeFileSync(temporaryPath, `${JSON.stringify(stored)}\n`, { flag: "wx", mode: PRIVATE_MODE });
  utimesSync(temporaryPath, 0, 0);
  fsyncPath(temporaryPath);
  copyOwnership(temporaryPath, file);
  renameSync(temporaryPath, path);
  fsyncPath(dirname(path));
}

/** Makes the marker of a database that was replaced valid for copies of it, too. */
export function settleMarker(databasePath: string): void {
  const marker = readMarker(databasePath);
  if (marker !== null) writeMarker(databasePath, marker);
}

/** Notes that the archive has all commits up to this time: the time of the marker says so to commands. */
export function noteArchived(databasePath: string, timeMs: number): void {
  try {
    utimesSync(markerPath(databasePath), timeMs / 1000, timeMs / 1000);
  } catch {
    // The file is that of another user, or was deleted: commands say that they do not know.
  }
}

/** Notes that `restore` replaces the database with this file, which is a backup. */
export function markReplaced(databasePath: string, file: string): void {
  const marker = readMarker(databasePath);
  // It may be that of a restore which was interrupted.
  if (marker === null) {
    rmSync(markerPath(databasePath), { force: true });
    return;
  }
  const names = [...marker.names, ...(marker.restored?.names ?? [])];
  const restored = { names, last: null };
  writeMarker(databasePath, { ...marker, complete: null, restored, isCopy: false }, file);
}

/** @see Backend.watchArchive */
export function watchArchive(databaseUrl: string): () => Promise<boolean> {
  const path = resolveDatabase(databaseUrl, false);
  /** As of the last {@link noteArchived}. */
  const archivedUntilMs = () => statSync(markerPath(path), { throwIfNoEntry: false })?.mtimeMs ?? 0;
  const opened = inodeOf(path);
  const marker = readMarker(path);
  // The archive has all of a copy.
  if (marker === null || marker.isCopy) return async () => true;
  return async () => {
    const writtenMs = Date.now();
    const notedMs = archivedUntilMs();
    for (let waitedMs = 0; ; waitedMs += POLL_MS) {
      if (inodeOf(path) !== opened || readMarker(path)?.isCopy)
        fail("operator", `Cannot use ${databaseUrl}: ${LOST}`);
      const untilMs = archivedUntilMs();
      // What was noted before may be from a clock that was ahead.
      if (untilMs > writtenMs && untilMs !== notedMs) return true;
      // Another server may have taken over from one that has ended.
      if (!isServed(path) || waitedMs >= TIMEOUT_MS) return false;
      await Bun.sleep(POLL_MS);
    }
  };
}
