/** A file next to the database that says which part of its archive belongs to it. */
import { closeSync, constants, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";
import { suffixes } from "../../base/database-url.ts";
import { systemCode } from "../../base/error.ts";
import { claimTemporary } from "../../base/temporary-file.ts";
import {
  copyOwnership,
  fileState,
  PRIVATE_MODE,
  replaceFile,
  requirePermission,
} from "../file/files.ts";
import type { SegmentId } from "./format.ts";

export interface ArchiveMarker {
  /** Names of the last generations that this database has begun, or tried to. One of them is the newest. */
  readonly names: readonly string[];
  /**
   * The last segment when the archive had all of the database, and the state of its file then. `null` while a server
   * uses it.
   */
  readonly complete: (SegmentId & { readonly file: string }) | null;
  /** The end of the archive when the database was restored; `null` once a server has continued the archive with it. */
  readonly restored: SegmentId | null;
  /** Whether `restore` has put another state in the place of the database, of which the archive has no base yet. */
  readonly isReplaced: boolean;
}

function markerOf(databasePath: string): string {
  return databasePath + suffixes.archive;
}

/**
 * @returns `null` if the database has none, or it cannot be parsed
 * @throws {AppError} operator if this process may not read it
 */
export function readMarker(databasePath: string): ArchiveMarker | null {
  const path = markerOf(databasePath);
  requirePermission([path], constants.R_OK);
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch (error) {
    if (systemCode(error) === "ENOENT" || error instanceof SyntaxError) return null;
    throw error;
  }
}

export function writeMarker(databasePath: string, marker: ArchiveMarker): void {
  const path = markerOf(databasePath);
  const temporaryPath = claimTemporary(path);
  const descriptor = openSync(temporaryPath, "wx", PRIVATE_MODE);
  try {
    writeSync(descriptor, `${JSON.stringify(marker)}\n`);
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
  copyOwnership(temporaryPath, databasePath);
  replaceFile(temporaryPath, path);
}

/** Notes that `restore` has replaced the database with a backup, or that the archive has a base of it. */
export function markReplaced(databasePath: string, isReplaced: boolean): void {
  const marker = readMarker(databasePath);
  if (marker === null || marker.isReplaced === isReplaced) return;
  writeMarker(databasePath, { ...marker, complete: null, isReplaced });
}

/** Notes that the archive has all of the database, up to this segment. */
export function markComplete(databasePath: string, last: SegmentId): void {
  const names = readMarker(databasePath)?.names ?? [];
  const complete = { ...last, file: fileState(databasePath) };
  writeMarker(databasePath, { names, complete, restored: null, isReplaced: false });
}
