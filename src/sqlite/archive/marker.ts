/** A file next to the database that says which part of its archive belongs to it. */
import { constants, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { suffixes } from "../../base/database-url.ts";
import { systemCode } from "../../base/error.ts";
import { claimTemporary, fsyncPath } from "../../base/temporary-file.ts";
import {
  copyOwnership,
  fileState,
  PRIVATE_MODE,
  replaceFile,
  requirePermission,
} from "../file/files.ts";
import type { SegmentId } from "./keys.ts";

export interface ArchiveMarker {
  /** Id of the archive; `null` if it is unknown. */
  readonly archive: string | null;
  /** Names of the last generations that this database has begun, or tried to, newest first. */
  readonly names: readonly string[];
  /** The last segment, and the state of the file, when a server had archived all of it and stopped; `null` if none has. */
  readonly complete: (SegmentId & { readonly file: string }) | null;
  /** Set if the database was restored, perhaps without the newest writes of the archive. */
  readonly restored: RestoredFrom | null;
  /**
   * Whether it is the copy of a standby: `complete` is its last segment that is in the file, and its WAL has later ones.
   * Nobody else may write to it.
   */
  readonly isCopy: boolean;
}

/** The newest state of the archive at the time of the restore. It counts only while that is still the newest state. */
interface RestoredFrom {
  /** Names of generations to one of which that state belongs. */
  readonly names: readonly string[];
  /** Its last segment; `null` if it is unknown, after the restore of a backup. */
  readonly last: SegmentId | null;
}

/** @returns `null` if there is no such file */
function inodeOf(path: string): string | null {
  return statSync(path, { bigint: true, throwIfNoEntry: false })?.ino.toString() ?? null;
}

function markerOf(databasePath: string): string {
  return databasePath + suffixes.archive;
}

/** @returns why an archive is not used that has another id than the marker, or none */
export function notTheArchive(databasePath: string): string {
  return `it is empty or another archive, and not the one of this database, e.g. because a disk is not mounted; to begin an archive there, delete ${markerOf(databasePath)}`;
}

/**
 * @returns `null` if the database has none, or it cannot be parsed
 * @throws {AppError} operator if this process may not read it
 */
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

/**
 * Notes that the file of a copy has this state of the archive.
 * @param last `null` if it is unknown, so that the copy cannot be continued
 * @param name of the newest generation
 * @param isInFile whether nothing of it is in the WAL only
 */
export function markCopy(
  path: string,
  last: SegmentId | null,
  name: string,
  isInFile = true,
): void {
  const archive = readMarker(path)?.archive ?? null;
  const complete = last === null || !isInFile ? null : { ...last, file: fileState(path) };
  const restored = { names: [name], last };
  writeMarker(path, { archive, names: [], complete, restored, isCopy: true });
}

/** Notes that the archive has all of the database, up to this segment. */
export function markComplete(databasePath: string, last: SegmentId): void {
  const marker = readMarker(databasePath);
  if (marker === null) return;
  const { generation, number } = last;
  const complete = { generation, number, file: fileState(databasePath) };
  writeMarker(databasePath, { ...marker, complete, restored: null });
}
