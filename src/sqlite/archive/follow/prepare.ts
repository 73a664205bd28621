/** Prepares the database of a server that has an archive: its own, restored, or the copy of a standby. */
import { AppError, fail, shellWord } from "../../../base/error.ts";
import type { ObjectStorage } from "../../../domain/object-storage.ts";
import { meaningOf } from "../../file/errors.ts";
import { type ServerContext, UNUSABLE } from "../context.ts";
import { decodeSegment, type Generation, HEAD_BYTES } from "../format.ts";
import { generationKey, type ObjectId, prefixes, shift, slotKey } from "../keys.ts";
import type { DatabaseFiles } from "../machine.ts";
import { createProblems } from "../problems.ts";
import * as catalog from "../read/catalog.ts";
import { markerOfRestored, type Restored, restoreTo } from "../read/rebuild.ts";
import { STORAGE_POLL_MS, untilStill } from "../read/still.ts";
import { announceRegularly } from "../write/announcement.ts";
import { seal, sealerOf } from "../write/log.ts";
import { watchAnew } from "./anew.ts";

async function restoreNewest(options: ServerContext): Promise<Restored> {
  const { files, machine, storage, log } = options;
  const { path } = files;
  try {
    using file = files.beginRestore();
    const restored = await restoreTo(file, machine, storage, null);
    file.publish((state) => markerOfRestored(restored, true, state));
    for (const reason of restored.warnings) log("warn", "archive needs attention", { reason });
    const until = new Date(restored.timeMs).toISOString();
    log("info", "archive restored", { storage: storage.url, until });
    return restored;
  } catch (error) {
    const problem = error instanceof AppError ? null : meaningOf(error);
    throw problem === null ? error : new AppError("operator", `cannot restore ${path}: ${problem}`);
  }
}

/** Waits until no server writes to the newest log, and seals it, so that none can add to what is restored. */
async function sealNewest(options: ServerContext): Promise<void> {
  const { storage, log, standby } = options;
  const { newest, tail } = await catalog.readEnd(storage);
  if (tail === null || tail.isSealed) return;
  // It has begun since this one has looked for it.
  if (standby) fail("unavailable", "waiting for another server, which has begun the archive");
  log("info", "waiting for the archive", { holder: newest?.holder ?? "" });
  await untilStill(options, tail.sealFrom);
  await seal(storage, tail.sealFrom, sealerOf(options));
}

/** Restores a missing database. @throws {AppError} operator if it must not, or cannot. @throws the reason of the signal */
export async function ensureDatabase(options: ServerContext): Promise<void> {
  const { files, storage, restore, standby } = options;
  const { path } = files;
  if (files.bytes() > 0) return;
  if (!(await catalog.isUsed(storage))) {
    if ((files.readMarker()?.archive ?? null) !== null)
      throw new AppError("operator", files.notTheArchive, { cause: UNUSABLE });
    return;
  }
  const { bases, newest } = await catalog.readCatalog(storage);
  if (bases.length === 0) {
    // A standby has waited, and sealed the log.
    if (standby && newest > 0 && (await catalog.areVoid(storage, 0, newest))) return;
    const advice = "put back what was deleted, or choose another ARCHIVE_URL";
    fail("operator", `${catalog.NO_BASE}: ${advice}`);
  }
  if (restore === "never") {
    const command = `user-api restore --from ${shellWord(storage.url)} --database-url ${shellWord(path)}`;
    const advice = `run \`${command}\`, or set ARCHIVE_RESTORE=if-missing`;
    fail("operator", `it has a database, but ${path} is missing: ${advice}`);
  }
  await sealNewest(options);
  await restoreNewest(options);
}

const MAX_READS = 8;
/** Time between two attempts to restore. Each may download all of the database: it is at least as long as the last one. */
const RESTORE_RETRY_MS = 5_000;

/** @returns the last segment in the database, if the archive has all of it, so that later ones can be appended */
export function followableFrom(files: DatabaseFiles): ObjectId | null {
  const marker = files.readMarker();
  if (marker?.complete == null || marker.complete.file !== files.state()) return null;
  // The WAL of a copy has segments of the archive. Any other one has writes that the archive does not have.
  return marker.isCopy || files.walBytes() === 0 ? marker.complete : null;
}

/**
 * Notes that the file of a copy has this state of the archive.
 * @param last `null` if it is unknown, so that the copy cannot be continued
 * @param name of the newest generation
 * @param isInFile whether nothing of it is in the WAL only
 * @param names of the generation that this server tries to begin
 */
export function markCopy(
  files: DatabaseFiles,
  last: ObjectId | null,
  name: string,
  isInFile = true,
  names: readonly string[] = [],
): void {
  const archive = files.readMarker()?.archive ?? null;
  const complete = last === null || !isInFile ? null : { ...last, file: files.state() };
  files.writeMarker({ archive, names, complete, restored: { names: [name], last }, isCopy: true });
}

async function previousOf(storage: ObjectStorage, id: ObjectId): Promise<ObjectId | null> {
  if (id.number > 1) return shift(id, -1);
  const { parent } = await catalog.readGeneration(storage, id.generation);
  return parent === null || parent.number > 0 ? parent : previousOf(storage, parent);
}

/** Writes the WAL of the primary as it was after a segment: later ones continue it. What it has is in the database as well. */
async function rebuildWal({ storage, files }: ServerContext, last: ObjectId): Promise<void> {
  using wal = files.beginWal();
  for (let next: ObjectId | null = last; next !== null; ) {
    const from: ObjectId = next;
    const count = Math.min(from.number, MAX_READS);
    const ids = Array.from({ length: count }, (_, at) => shift(from, -at));
    const bodies = await Promise.all(ids.map((id) => storage.get(slotKey(id))));
    for (const [at, id] of ids.entries()) {
      const body = bodies[at] ?? fail("operator", `${slotKey(id)} is missing`);
      const { header, bytes } = decodeSegment(id, body);
      wal.write(bytes, header.offset);
      if (header.offset === 0) return wal.publish();
    }
    next = await previousOf(storage, shift(from, 1 - count));
  }
}

async function untilContinued(
  { storage, machine, signal, onWaiting, takeoverMs, wasSuperseded }: ServerContext,
  { number }: Generation,
): Promise<boolean> {
  const endMs = machine.monotonicMs() + (wasSuperseded ? 2 * takeoverMs : 0);
  while ((await storage.get(generationKey(number + 1), HEAD_BYTES)) === null) {
    signal.throwIfAborted();
    if (machine.monotonicMs() >= endMs) return false;
    onWaiting?.("another server, which has ended its log");
    await machine.sleep(STORAGE_POLL_MS, signal);
  }
  return true;
}

/** @returns whether another server has the newest generation, and the database is missing, or can become a copy of that */
async function mustFollow(options: ServerContext, newest: Generation): Promise<boolean> {
  const { files } = options;
  if (files.bytes() === 0) return true;
  const marker = files.readMarker();
  const isOwn = marker?.names.includes(newest.name);
  if (isOwn && !(await untilContinued(options, newest))) return false;
  const isSame = (marker?.archive ?? newest.archive) === newest.archive;
  return isSame && (marker?.isCopy === true || followableFrom(files) !== null);
}

/**
 * Restores a copy as soon as that succeeds: when the archive has a base, the disk has room for it, or a server has written
 * again what is missing, which this one announces.
 * @returns its last segment; `null` if the archive never had a base, and the server that was to write it has ended
 */
async function restoreCopy(options: ServerContext, newest: Generation): Promise<ObjectId | null> {
  const { machine, signal, log } = options;
  const problems = createProblems(log, machine, options.onWaiting);
  const look = watchAnew(options, 0, newest);
  let lacks: string | null = null;
  const state = () => ({ lacks, canWrite: false });
  using announcing = announceRegularly(options, state);
  const note = (isLacking: boolean) => {
    const found = isLacking ? prefixes.bases : null;
    if (found === lacks) return;
    lacks = found;
    announcing.announce();
  };
  for (;;) {
    signal.throwIfAborted();
    const startedMs = machine.monotonicMs();
    let waitMs = STORAGE_POLL_MS;
    try {
      const found = await look();
      if (found.found === "the end") return null;
      if (found.found === "a base") {
        waitMs = RESTORE_RETRY_MS;
        const { last } = await restoreNewest(options);
        problems.clear("following");
        return last;
      }
      note(found.found === "nothing" && found.hadBase);
      if (found.found === "nothing") fail("unavailable", found.waitsFor);
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      problems.report("following", error);
      if (error.code === "operator") note(true);
    }
    await machine.sleep(Math.max(waitMs, machine.monotonicMs() - startedMs), signal);
  }
}

export type CopyStart = Awaited<ReturnType<typeof continueCopy>>;

/** @param id of the last segment in the database. @returns the copy, whose WAL continues after that */
async function continueCopy(options: ServerContext, id: ObjectId, newest: Generation) {
  const { files, storage } = options;
  // The marker has more.
  const last = shift(id, 0);
  files.discardWal();
  const head = await catalog.readHead(storage, last);
  // First: the next start writes the WAL of a copy again.
  markCopy(files, last, newest.name);
  const isThere = head?.kind === "segment";
  if (isThere) await rebuildWal(options, last);
  return {
    last,
    /** Of the last segment; `null` if that was deleted, or is before the first one. */
    end: isThere ? head.end : null,
    /** The copy has all commits up to this time. */
    timeMs: head?.timeMs ?? 0,
  };
}

/**
 * Call it while no process has the database open.
 * @returns the copy; `null` if there is nothing to follow: then the archiver compares the database with the archive, and
 * continues that, begins it, or refuses the database
 * @throws {AppError} operator if the archive cannot be read
 * @throws the reason of the signal, or an AppError, unavailable, if that is aborted
 */
export async function prepareCopy(options: ServerContext): Promise<CopyStart | null> {
  const newest = catalog.requireNewest(await catalog.readCatalog(options.storage));
  if (newest === null || !(await mustFollow(options, newest))) return null;
  const last = followableFrom(options.files);
  if (last !== null)
    try {
      return await continueCopy(options, last, newest);
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== "operator") throw error;
    }
  const id = await restoreCopy(options, newest);
  return id && (await continueCopy(options, id, newest));
}
