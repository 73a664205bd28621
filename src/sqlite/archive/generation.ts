/** Begins a generation: decides whether it continues the archive, or needs a base. */
import { fail } from "../../error.ts";
import type { ObjectStorage } from "../../object-storage.ts";
import { type Base, encodeJson, type Generation, generationKey, type SegmentId } from "./format.ts";
import { type ArchiveEnd, readEnd } from "./history.ts";
import { beginningOf, continuesAt, type LogFiles, type LogPosition } from "./log.ts";
import { type ArchiveMarker, fileState, readMarker, writeMarker } from "./marker.ts";

export interface Beginning {
  readonly generation: Generation;
  readonly position: LogPosition;
  /** The newest base of what it continues; `null` if it needs one. */
  readonly base: Base | null;
}

function isSame(one: SegmentId | null, other: SegmentId | null): boolean {
  return one?.generation === other?.generation && one?.number === other?.number;
}

/** @throws {AppError} operator if somebody else has written to the archive since this database last did */
function requireOwn(end: ArchiveEnd | null, marker: ArchiveMarker | null): void {
  if (end === null) return;
  if (marker === null) {
    fail(
      "operator",
      "the archive belongs to another database: restore it with `user-api restore`, or choose another ARCHIVE_URL",
    );
  }
  const isContinued = marker.restored !== null && !isSame(marker.restored, end.parent);
  if (marker.names.includes(end.newest.name) && !isContinued) return;
  fail(
    "operator",
    "another server has continued the archive: restore it with `user-api restore`, or choose another ARCHIVE_URL",
  );
}

/**
 * Call it while the log cannot be restarted.
 * @returns where the archive ends in the log; `null` if that cannot be proved
 */
function findEnd(
  path: string,
  files: LogFiles,
  end: ArchiveEnd | null,
  marker: ArchiveMarker | null,
): LogPosition | null {
  if (end === null || end.base === null) return null;
  if (end.last !== null && continuesAt(files, end.last.end)) return end.last.end;
  const complete = marker?.complete ?? null;
  if (complete === null || !isSame(complete, end.parent)) return null;
  // Then everything since is in the log, because nothing has been copied from it.
  return complete.file === fileState(path) ? beginningOf(files) : null;
}

/**
 * @param isLost whether parts of the log since the end of the archive are known to be lost
 * @throws {AppError} operator if the archive is not that of this database
 */
export async function beginGeneration(
  storage: ObjectStorage,
  path: string,
  files: LogFiles,
  isLost: boolean,
): Promise<Beginning> {
  const end = await readEnd(storage);
  const marker = readMarker(path);
  requireOwn(end, marker);
  const found = isLost ? null : findEnd(path, files, end, marker);
  const parent = found === null ? null : (end?.parent ?? null);
  const name = crypto.randomUUID();
  const number = (end?.newest.number ?? 0) + 1;
  const generation: Generation = { number, name, parent };
  // First, so that this database is known to be the one that continues the archive.
  const names = end === null ? [name] : [name, end.newest.name];
  const complete = marker?.complete ?? null;
  writeMarker(path, { names, complete, restored: marker?.restored ?? null });
  const created = await storage.create(generationKey(number), encodeJson(generation));
  if (created === null) fail("unavailable", "the archive has been changed at the same time");
  writeMarker(path, { names, complete, restored: null });
  const position = found ?? beginningOf(files);
  return { generation, position, base: parent === null ? null : (end?.base ?? null) };
}
