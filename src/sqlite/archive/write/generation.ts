/** Begins a generation: decides whether this database continues the archive, needs a base, or must not be archived. */
import { AppError, fail, shellWord } from "../../../base/error.ts";
import { ARCHIVE_CAUSE, type ArchiveContext, DIVERGED, UNUSABLE } from "../context.ts";
import type { Base, Generation } from "../format.ts";
import { isSameSegment, type ObjectId, shift } from "../keys.ts";
import type { ArchiveMarker, DatabaseFiles, Progress, WalPosition } from "../machine.ts";
import { areVoid, readEnd, readLastHeader, readNewestProgress } from "../read/catalog.ts";
import { untilStill } from "../read/still.ts";
import { createRecord, seal, sealerOf } from "./log.ts";

export interface Beginning {
  readonly generation: Generation;
  readonly position: WalPosition;
  /** Where the last segment of what it continues ends; `null` if there is none. */
  readonly previous: WalPosition | null;
  /** That segment. Its number is 0 if there is none. */
  readonly last: ObjectId;
  /** Everything in what it continues was written at or before this time. */
  readonly timeMs: number;
  /** The newest base of what it continues; `null` if it begins with a base. */
  readonly newest: Base | null;
  /** What is missing or damaged at the end of the archive; `null` if nothing is. */
  readonly damage: string | null;
}

export type Continuation = Omit<Beginning, "position">;

/** What an operator can do, unless the server sets the database aside. */
export const RESTORE =
  "restore it with `user-api restore --from` and this ARCHIVE_URL, or choose another one";
const HAS_MORE =
  "the archive has writes that this database does not have, e.g. because an older state of its files was put back";
const HAS_LATER =
  "the archive has later writes that this database does not have: put back what is missing, start the server that has them";
const OF_ANOTHER = `the archive belongs to another database: ${RESTORE}`;

type End = Awaited<ReturnType<typeof readEnd>>;

function refuse(reason: string, cause: string = ARCHIVE_CAUSE): never {
  throw new AppError("operator", reason, { cause });
}

/** The database has what another server does not have, which has continued the archive. @throws {AppError} operator */
export function failContinued(): never {
  refuse("another server has continued the archive", DIVERGED);
}

/** Call it while the WAL cannot be restarted. @returns where the archive ends; `null` if that cannot be proved */
function findPosition(archive: ArchiveContext, last: ObjectId, end: WalPosition | null) {
  const { files, database } = archive;
  if (end !== null && database.continuesAt(end)) return end;
  const complete = files.readMarker()?.complete ?? null;
  if (complete === null || !isSameSegment(complete, last)) return null;
  // Then everything since is in the WAL, because nothing has been copied from it.
  return complete.file === files.state() ? database.beginning() : null;
}

/** @returns whether the archive still has the state from which the database was restored as its newest one */
function isStillRestored(history: End["history"], restored: ArchiveMarker["restored"]): boolean {
  if (history === null || restored === null) return false;
  const { catalog, last, lastGeneration, tail } = history;
  const name = catalog.generations.get(lastGeneration)?.name ?? "";
  // A copy can have segments that the archive has lost.
  const sealed = tail?.isSealed ? shift(tail.sealFrom, -1) : last;
  const isAtEnd = [last, sealed].some((end) => isSameSegment(end, restored.last ?? last));
  return restored.names.includes(name) && isAtEnd;
}

/** @returns where the database can continue the archive, and how that ends. @throws {AppError} operator if it must not */
async function compare(archive: ArchiveContext, { catalog, newest, history, tail }: End) {
  const { opening: storage, files } = archive;
  const marker = files.readMarker();
  const id = marker?.archive ?? null;
  if (id !== null && id !== newest?.archive) {
    const reason = files.notTheArchive;
    // A server that is running waits: the disk may be mounted again.
    const awaited = "waiting for the archive of this database, which an operator puts back";
    if (newest === null && archive.hasGap) fail("unavailable", `${awaited}: ${reason}`);
    refuse(reason, UNUSABLE);
  }
  const isRestored = isStillRestored(history, marker?.restored ?? null);
  // Otherwise a server that began the archive was killed before it was of use.
  const isOfUse = catalog.bases.length > 0 || !(await areVoid(storage, 0, catalog.newest));
  const names = [...(marker?.names ?? []), ...((isRestored && marker?.restored?.names) || [])];
  if (isOfUse && !names.includes(newest?.name ?? "")) {
    // Two new machines may have started in the same moment: the other one was faster.
    if (marker === null && !archive.standby) refuse(OF_ANOTHER);
    failContinued();
  }
  const lacks = (state: Progress | null) => state !== null && archive.progress.lacks(state);
  if (history === null || archive.hasGap) {
    const base = catalog.bases[0] ?? { generation: 1 };
    const isOld = isOfUse && !archive.hasGap;
    if (isOld && lacks(await readNewestProgress(catalog, { base, tail })))
      refuse(`no base can be read, and ${HAS_LATER}, or choose another ARCHIVE_URL`);
    return { position: null, header: null, damage: null };
  }
  const { header, damage } = await readLastHeader(history);
  // What continues something damaged could not be restored.
  const canContinue = damage === null && history.lastGeneration === catalog.newest;
  const end = header?.end ?? null;
  const position = canContinue ? findPosition(archive, history.last, end) : null;
  const archived = header?.progress ?? history.base.progress;
  if (position === null && !isRestored && lacks(archived)) refuse(HAS_MORE, DIVERGED);
  const isSure = canContinue || isRestored;
  if (lacks(isSure ? null : await readNewestProgress(catalog, history))) {
    const at = new Date(header?.timeMs ?? history.base.timeMs).toISOString();
    const what = damage ?? `generation ${catalog.newest} has no complete base`;
    const command = `user-api restore --from ${shellWord(storage.url)} --at ${at}`;
    refuse(`${what}, and ${HAS_LATER}, or give those up with \`${command}\``);
  }
  return { position, header, damage };
}

/** More than the attempts whose record may still arrive. */
const MAX_NAMES = 8;

/** @param known the archive, when its record is stored: until then, another server may begin it, or none */
function markOwn(files: DatabaseFiles, name: string, known?: string): void {
  const marker = files.readMarker();
  const { names = [], complete = null, restored = null } = marker ?? {};
  const own = [...new Set([name, ...names])].slice(0, MAX_NAMES);
  const archive = known ?? marker?.archive ?? null;
  files.writeMarker({ archive, names: own, complete, restored, isCopy: false });
}

/** @returns `null` if nothing proves that the database is what was followed, or it needs a base and cannot begin with one */
function continueFollowed(archive: ArchiveContext, followed: Continuation): Beginning | null {
  const { files } = archive;
  const position = findPosition(archive, followed.last, followed.previous);
  if (position === null || (followed.newest === null && position.offset > 0)) return null;
  markOwn(files, followed.generation.name, followed.generation.archive);
  return { ...followed, position };
}

/**
 * @param followed what this server has begun already, as a standby. @throws the reason of the signal
 * @throws {AppError} operator with a cause of {@link ArchiveCause} if this database must not be archived
 */
export async function beginGeneration(archive: ArchiveContext, followed: Continuation | null) {
  const begun = followed === null ? null : continueFollowed(archive, followed);
  if (begun !== null) return begun;
  const { opening: storage, identity, commit, machine, files, database, standby } = archive;
  /** The generation whose log was sealed before the catalog was read. */
  let sealed = 0;
  for (;;) {
    const end = await readEnd(storage);
    const { catalog, newest, history, tail } = end;
    const { position, header, damage } = await compare(archive, end);
    const mustSeal = newest !== null && tail?.isSealed === false;
    if (mustSeal) {
      // Otherwise it was an earlier process with the same lock.
      if (newest.identity !== identity) {
        // Two machines have begun the archive at the same time: this one follows.
        if (standby && !files.readMarker()?.names.includes(newest.name)) failContinued();
        archive.log("info", "waiting for the archive", { holder: newest.holder });
        // Otherwise this is a copy of the files of a server that is running.
        if (!(await untilStill({ ...archive, storage }, tail.sealFrom, standby))) failContinued();
      }
      // Otherwise no server would write.
      files.requireWritable();
      await seal(storage, tail.sealFrom, sealerOf(archive));
    }
    // Before the seal, its server may have completed a base since this one has looked for it.
    if (mustSeal || (position === null && newest !== null && newest.number !== sealed)) {
      sealed = newest.number;
      continue;
    }
    const continued = position === null ? null : history;
    const sealedEnd = (tail?.sealFrom.number ?? 1) - 1;
    const generation: Generation = {
      number: catalog.newest + 1,
      archive: newest?.archive ?? machine.newId(),
      name: machine.newId(),
      previousEnd: sealedEnd,
      parent: continued === null ? null : { generation: catalog.newest, number: sealedEnd },
      identity,
      holder: files.holder,
      commit,
    };
    // First, so that this database is known to be the one that continues the archive.
    markOwn(files, generation.name);
    if (!(await createRecord(storage, generation))) continue;
    markOwn(files, generation.name, generation.archive);
    return {
      generation,
      position: position ?? database.beginning(),
      previous: continued === null ? null : (header?.end ?? null),
      last: continued?.last ?? { generation: generation.number, number: 0 },
      timeMs: continued === null ? 0 : Math.max(continued.base.timeMs, header?.timeMs ?? 0),
      newest: continued?.base ?? null,
      damage,
    };
  }
}
