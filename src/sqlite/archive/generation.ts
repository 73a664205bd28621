/** Begins a generation: decides whether this database continues the archive, needs a base, or must not be archived. */
import { AppError, fail, shellWord } from "../../base/error.ts";
import { withRetries } from "../../domain/object-storage.ts";
import { fileState } from "../file/files.ts";
import {
  type Catalog,
  type History,
  isSameSegment,
  readCatalog,
  readEnd,
  readLastHeader,
  readNewestProgress,
  requireNewest,
} from "./catalog.ts";
import { ARCHIVE_CAUSE, type ArchiveContext, DIVERGED } from "./context.ts";
import { type Base, type Generation, HEAD_BYTES, type SegmentHeader } from "./format.ts";
import { heartbeatKey, type SegmentId } from "./keys.ts";
import { createRecord, seal } from "./log.ts";
import type { LogExtent } from "./log-reader.ts";
import { type ArchiveMarker, notTheArchive, readMarker, writeMarker } from "./marker.ts";
import type { Progress } from "./progress.ts";
import { untilStill } from "./still.ts";
import { beginningOf, continuesAt, type WalPosition } from "./wal-reader.ts";

export interface Beginning {
  readonly generation: Generation;
  readonly position: WalPosition;
  /** Where the last segment of what it continues ends; `null` if there is none. */
  readonly previous: WalPosition | null;
  /** That segment. Its number is 0 if there is none. */
  readonly last: SegmentId;
  /** Everything in what it continues was written at or before this time. */
  readonly timeMs: number;
  /** The newest base of what it continues; `null` if it begins with a base. */
  readonly newest: Base | null;
  /** What is missing or damaged at the end of the archive; `null` if nothing is. */
  readonly damage: string | null;
}

/** What an operator can do, unless the server sets the database aside. */
export const RESTORE = "restore it with `user-api restore`, or choose another ARCHIVE_URL";
const HAS_MORE =
  "the archive has writes that this database does not have, e.g. because an older state of its files was put back";
const HAS_LATER =
  "the archive has later writes that this database does not have: put back what is missing, start the server that has them";
const OF_ANOTHER = `the archive belongs to another database: ${RESTORE}`;

type End = Awaited<ReturnType<typeof readEnd>>;

/** @throws {AppError} operator: a database must not be archived */
function refuse(reason: string, cause: string = ARCHIVE_CAUSE): never {
  throw new AppError("operator", reason, { cause });
}

/** The database has what another server does not have, which has continued the archive. @throws {AppError} operator */
export function failContinued(): never {
  refuse("another server has continued the archive", DIVERGED);
}

/**
 * Call it while the WAL cannot be restarted.
 * @param header of the last segment; `null` if there is none
 * @returns where the archive ends in the WAL; `null` if that cannot be proved
 */
function findPosition(
  { path, files }: ArchiveContext,
  { last }: History,
  header: SegmentHeader | null,
  marker: ArchiveMarker | null,
): WalPosition | null {
  if (header !== null && continuesAt(files, header.end)) return header.end;
  const complete = marker?.complete ?? null;
  if (complete === null || !isSameSegment(complete, last)) return null;
  // Then everything since is in the WAL, because nothing has been copied from it.
  return complete.file === fileState(path) ? beginningOf(files) : null;
}

/** @returns whether the archive still has the state from which the database was restored as its newest one */
function isStillRestored(
  { generations }: Catalog,
  history: History | null,
  restored: ArchiveMarker["restored"],
): boolean {
  if (history === null || restored === null) return false;
  const name = generations.get(history.lastGeneration)?.name ?? "";
  const { last, tail } = history;
  // A copy can have segments that the archive has lost.
  const sealed = tail?.isSealed ? { ...tail.sealFrom, number: tail.sealFrom.number - 1 } : last;
  const isAtEnd = [last, sealed].some((end) => isSameSegment(end, restored.last ?? last));
  return restored.names.includes(name) && isAtEnd;
}

/** @throws {AppError} operator if another database than this one has the archive, and something can be restored */
function requireOwner(
  { bases }: Catalog,
  newest: Generation | null,
  marker: ArchiveMarker | null,
  isRestored: boolean,
): void {
  const name = newest?.name ?? "";
  // Without a base, a server that began the archive was killed before it was of use.
  if (bases.length === 0 || marker?.names.includes(name)) return;
  if (isRestored && marker?.restored?.names.includes(name)) return;
  if (marker === null) refuse(OF_ANOTHER);
  failContinued();
}

/**
 * Compares the database with the end of the archive. Nothing is changed.
 * @returns where the database can continue it, as `findPosition` does, and how it ends, as `readLastHeader` does
 * @throws {AppError} operator if the database must not be archived
 */
async function compare(archive: ArchiveContext, catalog: Catalog, { history, tail }: End) {
  const newest = requireNewest(catalog);
  const marker = readMarker(archive.path);
  const id = marker?.archive ?? null;
  if (id !== null && id !== newest?.archive) {
    const reason = notTheArchive(archive.path);
    // A server that is running waits: the disk may be mounted again.
    if (newest === null && archive.hasGap) fail("unavailable", reason);
    refuse(reason);
  }
  const isRestored = isStillRestored(catalog, history, marker?.restored ?? null);
  requireOwner(catalog, newest, marker, isRestored);
  const lacks = (state: Progress | null) => state !== null && archive.progress.lacks(state);
  if (history === null || archive.hasGap) {
    const base = archive.hasGap ? undefined : catalog.bases[0];
    if (base && lacks(await readNewestProgress(archive.storage, catalog, { base, tail })))
      refuse(`no base can be read, and ${HAS_LATER}, or choose another ARCHIVE_URL`);
    return { position: null, header: null, damage: null };
  }
  const { header, damage } = await readLastHeader(archive.storage, history);
  // What continues something damaged could not be restored.
  const canContinue = damage === null && history.lastGeneration === catalog.newest;
  const position = canContinue ? findPosition(archive, history, header, marker) : null;
  const archived = header?.progress ?? history.base.progress;
  if (position === null && !isRestored && lacks(archived)) refuse(HAS_MORE, DIVERGED);
  const isSure = canContinue || isRestored;
  if (lacks(isSure ? null : await readNewestProgress(archive.storage, catalog, history))) {
    const at = new Date(header?.timeMs ?? history.base.timeMs).toISOString();
    const what = damage ?? `generation ${catalog.newest} has no complete base`;
    const command = `user-api restore --from ${shellWord(archive.storage.url)} --at ${at}`;
    refuse(`${what}, and ${HAS_LATER}, or give those up with \`${command}\``);
  }
  return { position, header, damage };
}

/** More than the attempts whose record may still arrive. */
const MAX_NAMES = 8;

/** Writes the marker first, so that this database is known to be the one that continues the archive. */
function prepareMarker(path: string, name: string): void {
  const marker = readMarker(path);
  const { archive = null, names = [], complete = null, restored = null } = marker ?? {};
  const kept = { archive, names: [name, ...names].slice(0, MAX_NAMES), complete, restored };
  writeMarker(path, { ...kept, isCopy: false });
}

/** Not before its record is stored: until then, another server may begin the archive, or none. */
function noteArchive(path: string, archive: string): void {
  const marker = readMarker(path);
  if (marker !== null && marker.archive !== archive) writeMarker(path, { ...marker, archive });
}

/** @returns the newest generation if this server has begun it like that, and nothing has been written to it since */
async function findUnfinished(
  { storage, identity, commit, path }: ArchiveContext,
  newest: Generation | null,
  tail: LogExtent | null,
  continues: boolean,
): Promise<Generation | null> {
  if (newest === null || tail?.isSealed !== false || tail.sealFrom.number > 1) return null;
  const isOwn = newest.identity === identity && readMarker(path)?.names.includes(newest.name);
  if (!isOwn || newest.commit !== commit || newest.continues !== continues || tail.loss)
    return null;
  // Its server writes a heartbeat before its first segment.
  return (await storage.get(heartbeatKey(newest.number), HEAD_BYTES)) === null ? newest : null;
}

/**
 * @throws {AppError} operator with a cause of {@link archiveCauses} if this database must not be archived
 * @throws the reason of the signal, if it waits for another server then
 */
export async function beginGeneration(
  archive: ArchiveContext,
  signal: AbortSignal,
): Promise<Beginning> {
  const { storage, identity, holder, commit, nowMs, clock, path, files } = archive;
  /** The generation whose log was sealed before the catalog was read. */
  let sealed = 0;
  for (;;) {
    const catalog = await readCatalog(storage);
    const newest = requireNewest(catalog);
    const end = await readEnd(storage, catalog);
    const { history, tail } = end;
    const { position, header, damage } = await compare(archive, catalog, end);
    const unfinished = await findUnfinished(archive, newest, tail, position !== null);
    const before = unfinished === null ? newest : null;
    if (before !== null && tail !== null && !tail.isSealed) {
      // Otherwise it was an earlier process with the same lock.
      if (before.identity !== identity) {
        // Two machines have begun the archive at the same time: this one follows.
        if (archive.standby && !readMarker(path)?.names.includes(before.name)) failContinued();
        archive.log("info", "waiting for the archive", { holder: before.holder });
        await untilStill(withRetries(storage), tail.sealFrom, clock, signal);
      }
      await seal(storage, tail.sealFrom, { writer: crypto.randomUUID(), holder }, nowMs());
      sealed = before.number;
      continue;
    }
    // Before the seal, its server may have completed a base since this one has looked for it.
    if (position === null && before !== null && before.number !== sealed) {
      sealed = before.number;
      continue;
    }
    const continued = position === null ? null : history;
    const generation: Generation = unfinished ?? {
      number: catalog.newest + 1,
      archive: newest?.archive ?? crypto.randomUUID(),
      name: crypto.randomUUID(),
      previousEnd: (tail?.sealFrom.number ?? 1) - 1,
      continues: continued !== null,
      identity,
      holder,
      commit,
    };
    if (unfinished === null) prepareMarker(path, generation.name);
    if (!(await createRecord(storage, generation))) continue;
    noteArchive(path, generation.archive);
    return {
      generation,
      position: position ?? beginningOf(files),
      previous: continued === null ? null : (header?.end ?? null),
      last: continued?.last ?? { generation: generation.number, number: 0 },
      timeMs: continued === null ? 0 : Math.max(continued.base.timeMs, header?.timeMs ?? 0),
      newest: continued?.base ?? null,
      damage,
    };
  }
}
