/** The file of the marker, next to the database. */
import { constants, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { suffixes } from "../../base/database-url.ts";
import { systemCode } from "../../base/error.ts";
import { claimTemporary, fsyncPath } from "../../base/temporary-file.ts";
import type { ArchiveMarker } from "../archive/machine.ts";
import { markerOfRestored, type Restored } from "../archive/read/rebuild.ts";
import {
  copyOwnership,
  fileState,
  PRIVATE_MODE,
  replaceFile,
  requirePermission,
} from "../file/files.ts";

function inodeOf(path: string): string | null {
  return statSync(path, { bigint: true, throwIfNoEntry: false })?.ino.toString() ?? null;
}

function markerOf(databasePath: string): string {
  return databasePath + suffixes.archive;
}

export function notTheArchive(databasePath: string): string {
  return `it is empty or another archive, and not the one of this database, e.g. because a disk is not mounted; to begin an archive there, delete ${markerOf(databasePath)}`;
}

export function readMarker(databasePath: string): ArchiveMarker | null {
  const path = markerOf(databasePath);
  requirePermission([path], constants.R_OK);
  try {
    const { next, ...marker } = JSON.parse(readFileSync(path, "utf8"));
    if (next !== undefined && next.inode === inodeOf(databasePath)) return next.marker;
    return marker.names === undefined ? null : marker;
  } catch (error) {
    if (systemCode(error) === "ENOENT" || error instanceof SyntaxError) return null;
    throw error;
  }
}

/**
 * @param file a complete one that is to replace the database. The marker is valid from then on, whenever a crash happens.
 * Settle it afterwards
 */
export function writeMarker(databasePath: string, marker: ArchiveMarker, file = databasePath) {
  const path = markerOf(databasePath);
  const temporaryPath = claimTemporary(path);
  const next = { inode: inodeOf(file), marker };
  const stored = file === databasePath ? marker : { ...readMarker(databasePath), next };
  writeFileSync(temporaryPath, `${JSON.stringify(stored)}\n`, { flag: "wx", mode: PRIVATE_MODE });
  utimesSync(temporaryPath, 0, 0);
  fsyncPath(temporaryPath);
  copyOwnership(temporaryPath, file);
  replaceFile(temporaryPath, path);
}

/** Makes the marker of a database that was replaced valid for copies of it, too. */
export function settleMarker(databasePath: string): void {
  const marker = readMarker(databasePath);
  if (marker !== null) writeMarker(databasePath, marker);
}

/** Notes that the archive has all commits up to this time: the time of the marker says so to commands. */
export function noteArchived(databasePath: string, timeMs: number): void {
  try {
    utimesSync(markerOf(databasePath), timeMs / 1000, timeMs / 1000);
  } catch {
    // The file is that of another user, or was deleted: commands say that they do not know.
  }
}

/** @returns as {@link noteArchived}; 0 if nothing was noted since the marker was written */
export function archivedUntilMs(databasePath: string): number {
  return statSync(markerOf(databasePath), { throwIfNoEntry: false })?.mtimeMs ?? 0;
}

/** Notes that `restore` replaces the database with this file, which is a backup. */
export function markReplaced(databasePath: string, file: string): void {
  const marker = readMarker(databasePath);
  // It may be that of a restore which was interrupted.
  if (marker === null) {
    rmSync(markerOf(databasePath), { force: true });
    return;
  }
  const names = [...marker.names, ...(marker.restored?.names ?? [])];
  const restored = { names, last: null };
  writeMarker(databasePath, { ...marker, complete: null, restored, isCopy: false }, file);
}

/** Notes that this file, which is to replace the database, was restored. @see markerOfRestored */
export function markRestored(
  path: string,
  restored: Restored,
  isSame: boolean,
  file: string,
): void {
  writeMarker(path, markerOfRestored(restored, isSame, fileState(file)), file);
}
