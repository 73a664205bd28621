/** Decides whether a server that may be a standby follows another one, and prepares its copy of the database. */
import { closeSync, fsyncSync, openSync, renameSync, rmSync } from "node:fs";
import { suffixes } from "../../base/database-url.ts";
import { fail } from "../../base/error.ts";
import { claimTemporary } from "../../base/temporary-file.ts";
import type { ObjectStorage } from "../../domain/object-storage.ts";
import { fileState, PRIVATE_MODE, sizeOf } from "../file/files.ts";
import { isUsed, readCatalog, readGeneration, requireNewest } from "./catalog.ts";
import { type EnsureOptions, restoreNewest } from "./ensure-database.ts";
import { decodeSegment, type Generation, HEAD_BYTES } from "./format.ts";
import { generationKey, prefixes, type SegmentId, slotKey } from "./keys.ts";
import { readHead } from "./log.ts";
import { type ArchiveMarker, markCopy, readMarker } from "./marker.ts";
import { createProblems } from "./problems.ts";
import type { Restored } from "./rebuild.ts";
import { STORAGE_POLL_MS } from "./still.ts";
import type { WalPosition } from "./wal-reader.ts";
import { writeFully } from "./wal-writer.ts";

export interface CopyStart {
  /** The last segment that is in it. */
  readonly last: SegmentId;
  /** Where that ends; `null` if it was deleted, or is before the first one. */
  readonly end: WalPosition | null;
  /** The copy has all commits up to this time. */
  readonly timeMs: number;
}

/** Segments that are read at the same time. */
const MAX_READS = 8;
/** Time between two looks for the first base. */
const BASE_POLL_MS = 1_000;
/** Time between two attempts to restore, each of which may download all of the database. */
const RESTORE_RETRY_MS = 30_000;

/** @returns whether the archive has all of the file, so that later segments can be appended */
export function canFollow(path: string, marker: ArchiveMarker | null): boolean {
  if (marker?.complete == null || marker.complete.file !== fileState(path)) return false;
  // The WAL of a copy has segments of the archive. Any other one has writes that the archive does not have.
  return marker.isCopy || sizeOf(path + suffixes.wal) === 0;
}

/** @returns the segment before this one; `null` if there is none */
async function previousOf(storage: ObjectStorage, id: SegmentId): Promise<SegmentId | null> {
  if (id.number > 1) return { ...id, number: id.number - 1 };
  const { continues, previousEnd } = await readGeneration(storage, id.generation);
  return continues && previousEnd > 0
    ? { generation: id.generation - 1, number: previousEnd }
    : null;
}

/**
 * Writes the WAL of the primary as it was at the end of a segment, from its beginning on: later segments continue it. What
 * it has is in the database as well.
 * @throws {AppError} operator if a segment is missing or damaged
 */
async function rebuildWal(storage: ObjectStorage, path: string, last: SegmentId): Promise<void> {
  const temporaryPath = claimTemporary(path);
  const descriptor = openSync(temporaryPath, "wx", PRIVATE_MODE);
  try {
    let next: SegmentId | null = last;
    while (next !== null) {
      const { generation, number }: SegmentId = next;
      const count = Math.min(number, MAX_READS);
      const ids = Array.from({ length: count }, (_, at) => ({ generation, number: number - at }));
      const bodies = await Promise.all(ids.map((id) => storage.get(slotKey(id))));
      next = await previousOf(storage, { generation, number: number - count + 1 });
      for (const [at, id] of ids.entries()) {
        const body = bodies[at] ?? fail("operator", `${slotKey(id)} is missing`);
        const { header, bytes } = decodeSegment(id, body);
        writeFully(descriptor, bytes, header.offset);
        if (header.offset > 0) continue;
        next = null;
        break;
      }
    }
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
  renameSync(temporaryPath, path + suffixes.wal);
}

/** Waits for the first base, which a server may be writing. @throws the reason of the signal */
async function untilFirstBase({ storage, clock, signal, log }: EnsureOptions) {
  for (let look = 0; (await storage.list(prefixes.bases, 1)).length === 0; look += 1) {
    signal.throwIfAborted();
    if (look === 0) log("info", "waiting for the first base of the archive");
    await clock.sleep(BASE_POLL_MS, signal);
  }
}

/** Waits for the record of the server that has ended this log. @returns whether there is one in time */
async function untilContinued(
  { storage, clock, signal }: EnsureOptions,
  { number }: Generation,
  waitMs: number,
): Promise<boolean> {
  const endMs = clock.monotonicMs() + waitMs;
  while ((await storage.get(generationKey(number + 1), HEAD_BYTES)) === null) {
    signal.throwIfAborted();
    if (clock.monotonicMs() >= endMs) return false;
    await clock.sleep(STORAGE_POLL_MS, signal);
  }
  return true;
}

/** Restores a copy as soon as that succeeds, e.g. when the disk has room for it. @throws {AppError} unavailable at the end */
function untilRestored(options: EnsureOptions): Promise<Restored> {
  const { clock, signal, log } = options;
  const attempt = () => restoreNewest(options);
  const pause = () => clock.sleep(RESTORE_RETRY_MS, signal);
  return createProblems(log).retry("following", () => signal.aborted, attempt, pause);
}

/** @param id of the last segment in the database. @returns the copy, whose WAL continues after that */
async function continueCopy(
  { path, storage }: EnsureOptions,
  { generation, number }: SegmentId,
  newest: Generation,
): Promise<CopyStart> {
  const id = { generation, number };
  for (const suffix of [suffixes.wal, suffixes.shm]) rmSync(path + suffix, { force: true });
  const head = await readHead(storage, id);
  // First: the next start writes the WAL of a copy again.
  markCopy(path, id, newest.name);
  if (head?.kind === "segment") await rebuildWal(storage, path, id);
  const end = head?.kind === "segment" ? head.end : null;
  return { last: id, end, timeMs: head?.timeMs ?? 0 };
}

/**
 * Call it while no process has the database open.
 * @param waitMs for the server that has ended the log of this one
 * @returns the copy; `null` if the newest log is that of this server, or there is none, or the database is no copy: then
 * the archiver compares it with the archive, and continues that or refuses the database
 * @throws {AppError} operator if the archive cannot be read
 * @throws the reason of the signal, or an AppError, unavailable, if that is aborted
 */
export async function prepareCopy(options: EnsureOptions, waitMs = 0): Promise<CopyStart | null> {
  const { path, storage } = options;
  if (!(await isUsed(storage))) return null;
  const catalog = await readCatalog(storage);
  const newest = requireNewest(catalog);
  if (newest === null) return null;
  const marker = readMarker(path);
  const isThere = sizeOf(path) > 0;
  const isOwn = isThere && marker?.names.includes(newest.name);
  if (isOwn && !(await untilContinued(options, newest, waitMs))) return null;
  const isOther = isThere && (marker?.archive ?? newest.archive) !== newest.archive;
  const last = canFollow(path, marker) ? marker?.complete : null;
  if (isOther || (isThere && last == null && !marker?.isCopy)) return null;
  await untilFirstBase(options);
  const id = last ?? (await untilRestored(options)).last;
  return await continueCopy(options, id, newest);
}
