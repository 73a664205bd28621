/** Begins a generation: decides whether it continues the archive, or needs a base. */
import { fail } from "../../error.ts";
import type { ObjectStorage } from "../../object-storage.ts";
import {
  type Base,
  encodeJson,
  type Generation,
  generationKey,
  type SegmentHeader,
  type SegmentId,
  type SegmentKey,
} from "./format.ts";
import { type ArchiveEnd, type HistoryEnd, hasBase, readEnd, readSound } from "./history.ts";
import { type ArchiveMarker, fileState, readMarker, writeMarker } from "./marker.ts";
import { beginningOf, continuesAt, type WalFiles, type WalPosition } from "./wal-reader.ts";

export interface Beginning {
  readonly generation: Generation;
  readonly position: WalPosition;
  /** The end of what it continues; `null` if it begins with a base. */
  readonly continued: HistoryEnd | null;
  /** The newest base of what it continues; `null` if it needs one. */
  readonly base: Base | null;
  /** The last segment of the archive, if it is damaged. */
  readonly damaged: SegmentKey | null;
}

function isSame(one: SegmentId | null, other: SegmentId | null): boolean {
  return one?.generation === other?.generation && one?.number === other?.number;
}

const CONTINUED =
  "another server has continued the archive: restore it with `user-api restore`, or choose another ARCHIVE_URL";
const OF_ANOTHER =
  "the archive belongs to another database: restore it with `user-api restore`, or choose another ARCHIVE_URL";

async function findRefusal(
  storage: ObjectStorage,
  end: ArchiveEnd | null,
  marker: ArchiveMarker | null,
): Promise<string | null> {
  if (end === null) return null;
  const isContinued =
    marker !== null && marker.restored !== null && !isSame(marker.restored, end.parent);
  if (marker?.names.includes(end.newest.name) && !isContinued) return null;
  // What has no base cannot be restored: a server that began it was killed before it was of use.
  if (!(await hasBase(storage))) return null;
  return marker === null ? OF_ANOTHER : CONTINUED;
}

/**
 * @returns why this database cannot continue the archive, nor later; `null` if it can, or nothing can be restored from
 * the archive
 */
export async function refusalOf(storage: ObjectStorage, path: string): Promise<string | null> {
  return findRefusal(storage, await readEnd(storage), readMarker(path));
}

/**
 * Call it while the WAL cannot be restarted.
 * @param last of the archive; `null` if there is none
 * @returns where the archive ends in the WAL; `null` if that cannot be proved
 */
function findEnd(
  path: string,
  files: WalFiles,
  end: ArchiveEnd,
  last: SegmentHeader | null,
  marker: ArchiveMarker | null,
): WalPosition | null {
  if (end.base === null) return null;
  if (last !== null && continuesAt(files, last.end)) return last.end;
  const complete = marker?.complete ?? null;
  if (complete === null || !isSame(complete, end.parent)) return null;
  // Then everything since is in the WAL, because nothing has been copied from it.
  return complete.file === fileState(path) ? beginningOf(files) : null;
}

/** @returns `null` if it has been changed or deleted at the same time */
async function replace(storage: ObjectStorage, key: string, body: Uint8Array<ArrayBuffer>) {
  const current = await storage.getWithTag(key);
  return current === null ? null : storage.replace(key, body, current.tag);
}

export interface BeginOptions {
  readonly storage: ObjectStorage;
  readonly path: string;
  readonly files: WalFiles;
  /** Whether parts of the WAL since the end of the archive are known to be lost. */
  readonly isLost: boolean;
  /** Of the lease, which is the number of the generation. No earlier one is higher. */
  readonly number: number;
  /** Of the generation: random, and the same in another attempt with this number. */
  readonly name: string;
}

/**
 * Call it with a lease, before which nobody reads the end of the archive.
 * @returns the generation, or why this database cannot continue the archive
 */
export async function beginGeneration(
  options: BeginOptions,
): Promise<Beginning | { readonly refused: string }> {
  const { storage, path, files, isLost, number, name } = options;
  const end = await readEnd(storage);
  const marker = readMarker(path);
  const refused = await findRefusal(storage, end, marker);
  if (refused !== null) return { refused };
  const newest = end?.newest ?? null;
  const isCreated = newest?.name === name;
  // This process was suspended after it had got the lease.
  if (newest !== null && newest.number >= number && !isCreated) return { refused: CONTINUED };
  const last = end?.last ?? null;
  const header = last === null ? null : await readSound(storage, last);
  const damaged = header === null ? last : null;
  // What continues a damaged segment could not be restored.
  const canContinue = end !== null && !isLost && damaged === null;
  const found = canContinue ? findEnd(path, files, end, header, marker) : null;
  const parent = found === null ? null : (end?.parent ?? null);
  const generation: Generation = { number, name, parent };
  // First, so that this database is known to be the one that continues the archive.
  const names = newest === null || isCreated ? [name] : [name, newest.name];
  const complete = marker?.complete ?? null;
  writeMarker(path, { names, complete, restored: marker?.restored ?? null });
  // An earlier attempt can have stored another parent, before the WAL was let go. Nothing else is in this generation yet.
  if (!isCreated || !isSame(newest.parent, parent)) {
    const key = generationKey(number);
    const body = encodeJson(generation);
    const stored = await (isCreated ? replace(storage, key, body) : storage.create(key, body));
    // The next attempt sees whether it is that of this process.
    if (stored === null) fail("unavailable", "the archive has been changed at the same time");
  }
  writeMarker(path, { names, complete, restored: null });
  const position = found ?? beginningOf(files);
  if (end === null || parent === null)
    return { generation, position, continued: null, base: null, damaged };
  const continued = { end: header?.end ?? null, timeMs: end.timeMs };
  return { generation, position, continued, base: end.base, damaged };
}
