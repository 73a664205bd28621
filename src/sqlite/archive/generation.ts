/** Begins a generation: decides whether it continues the archive, or needs a base. */
import { fail } from "../../base/error.ts";
import type { ObjectStorage } from "../../domain/object-storage.ts";
import { fileState } from "../file/files.ts";
import { type Contents, hasBase, readContents } from "./contents.ts";
import {
  type Base,
  encodeJson,
  type Generation,
  generationKey,
  type SegmentHeader,
  segmentKey,
} from "./format.ts";
import {
  type ArchivedState,
  type ArchiveEnd,
  isAtOrBefore,
  isSameSegment,
  nameOf,
  readEnd,
  readHistory,
  readSound,
} from "./history.ts";
import { type ArchiveMarker, readMarker, writeMarker } from "./marker.ts";
import type { Progress, ProgressReader } from "./progress.ts";
import { beginningOf, continuesAt, type WalFiles, type WalPosition } from "./wal-reader.ts";

export interface Beginning {
  readonly generation: Generation;
  readonly position: WalPosition;
  /** Where the last segment of what it continues ends; `null` if there is none. */
  readonly previous: WalPosition | null;
  /** Everything in what it continues was written at or before this time. */
  readonly timeMs: number;
  /** The newest base of what it continues; `null` if it begins with a base. */
  readonly newest: Base | null;
  /** Size of the segments of earlier generations since that base, as stored. */
  readonly bytesSince: number;
  /** What is damaged at the end of the archive; `null` if nothing is. */
  readonly damage: string | null;
}

const CONTINUED =
  "another server has continued the archive: restore it with `user-api restore`, or choose another ARCHIVE_URL";
const HAS_MORE =
  "the archive has writes that this database does not have, e.g. because an older state of its files was put back: restore it with `user-api restore`, or choose another ARCHIVE_URL";
const OF_ANOTHER =
  "the archive belongs to another database: restore it with `user-api restore`, or choose another ARCHIVE_URL";

async function findRefusal(
  storage: ObjectStorage,
  end: ArchiveEnd | null,
  marker: ArchiveMarker | null,
): Promise<string | null> {
  if (end === null) return null;
  const isContinued =
    marker !== null &&
    marker.restored !== null &&
    !isSameSegment(marker.restored, end.state?.last ?? null);
  if (marker?.names.includes(end.newest.name) && !isContinued) return null;
  // What has no base cannot be restored: a server that began it was killed before it was of use.
  if (!(await hasBase(storage))) return null;
  return marker === null ? OF_ANOTHER : CONTINUED;
}

/**
 * @returns why this database can never continue the archive; `null` if it can, or nothing can be restored from
 * the archive
 */
export async function refusalOf(storage: ObjectStorage, path: string): Promise<string | null> {
  const end = await readEnd(storage, await readContents(storage));
  return findRefusal(storage, end, readMarker(path));
}

/**
 * Call it while the WAL cannot be restarted.
 * @param last of the archive; `null` if there is none
 * @returns where the archive ends in the WAL; `null` if that cannot be proved
 */
function findEnd(
  path: string,
  files: WalFiles,
  state: ArchivedState,
  last: SegmentHeader | null,
  marker: ArchiveMarker | null,
): WalPosition | null {
  if (last !== null && continuesAt(files, last.end)) return last.end;
  const complete = marker?.complete ?? null;
  if (complete === null || !isSameSegment(complete, state.last)) return null;
  // Then everything since is in the WAL, because nothing has been copied from it.
  return complete.file === fileState(path) ? beginningOf(files) : null;
}

/** @returns that of the newest state that can be restored, or an earlier one; `null` if it is unknown */
async function readProgress(storage: ObjectStorage, contents: Contents): Promise<Progress | null> {
  for (const lineage of contents.lineages) {
    const { state } = await readHistory(storage, contents, lineage);
    if (state === null) continue;
    const last = state.segments.at(-1);
    const header = last === undefined ? null : await readSound(storage, last);
    return header?.progress ?? state.base.progress ?? null;
  }
  return null;
}

function findDamage(end: ArchiveEnd | null, last: SegmentHeader | null): string | null {
  const { state = null, missing = null } = end ?? {};
  if (missing !== null) return `${nameOf(missing)} is missing`;
  const key = state?.segments.at(-1);
  return key === undefined || last !== null ? null : `${segmentKey(key)} is damaged`;
}

/** @returns the size of the segments since the base */
function bytesSince({ base, segments }: ArchivedState): number {
  const since = segments.filter((segment) => !isAtOrBefore(segment, base.last));
  return since.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** More than the attempts whose record may still arrive. */
const MAX_NAMES = 8;

interface BeginOptions {
  readonly storage: ObjectStorage;
  readonly path: string;
  readonly files: WalFiles;
  readonly progress: Pick<ProgressReader, "lacks">;
  /** Whether parts of the WAL since the end of the archive are known to be lost. */
  readonly hasGap: boolean;
  /** Number of the lease, and of the generation. No earlier one is higher. */
  readonly number: number;
  /** Name of the generation: random. */
  readonly name: string;
}

/**
 * Call it with a lease, before which nobody reads the end of the archive.
 * @returns the generation, or why this database cannot continue the archive
 */
export async function beginGeneration(
  options: BeginOptions,
): Promise<Beginning | { readonly refused: string }> {
  const { storage, path, files, progress, hasGap, number, name } = options;
  const contents = await readContents(storage);
  const end = await readEnd(storage, contents);
  const marker = readMarker(path);
  const refused = await findRefusal(storage, end, marker);
  if (refused !== null) return { refused };
  const newest = end?.newest ?? null;
  // This process was suspended after it had got the lease.
  if (newest !== null && newest.number >= number) return { refused: CONTINUED };
  const state = end?.state ?? null;
  const last = state?.segments.at(-1) ?? null;
  const header = last === null ? null : await readSound(storage, last);
  const damage = findDamage(end, header);
  // What continues something damaged could not be restored.
  const canContinue = state !== null && !hasGap && damage === null;
  const found = canContinue ? findEnd(path, files, state, header, marker) : null;
  if (found === null && !hasGap && marker?.isReplaced !== true) {
    const archived = await readProgress(storage, contents);
    if (archived !== null && progress.lacks(archived)) return { refused: HAS_MORE };
  }
  const continued = found === null ? null : state;
  const parent = continued?.last ?? null;
  const generation: Generation = { number, name, parent };
  // First, so that this database is known to be the one that continues the archive.
  const names = [name, ...(marker?.names ?? [])].slice(0, MAX_NAMES);
  const complete = marker?.complete ?? null;
  const isReplaced = found === null && marker?.isReplaced === true;
  writeMarker(path, { names, complete, restored: marker?.restored ?? null, isReplaced });
  // The next attempt, with another lease, sees whether it was stored.
  if ((await storage.create(generationKey(number), encodeJson(generation))) === null)
    fail("unavailable", "the archive has been changed at the same time");
  writeMarker(path, { names, complete, restored: null, isReplaced });
  return {
    generation,
    position: found ?? beginningOf(files),
    previous: continued === null ? null : (header?.end ?? null),
    timeMs: continued?.timeMs ?? 0,
    newest: continued?.base ?? null,
    bytesSince: continued === null ? 0 : bytesSince(continued),
    damage,
  };
}
