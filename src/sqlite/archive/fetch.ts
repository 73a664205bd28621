/** Rebuilds a database from its archive. */
import { closeSync, openSync, rmSync, writeSync } from "node:fs";
import { suffixes } from "../../base/database-url.ts";
import { fail } from "../../base/error.ts";
import { MAX_OBJECT_BYTES, type ObjectStorage, withRetries } from "../../domain/object-storage.ts";
import { connect } from "../file/connection.ts";
import { discard, fileState, PRIVATE_MODE } from "../file/files.ts";
import { FRAME_HEADER_BYTES, isCommit, WAL_HEADER_BYTES } from "../file/wal-index.ts";
import { type Contents, readContents, withDamage } from "./contents.ts";
import { type FoundState, failUnrestorable, findState } from "./find-state.ts";
import {
  type Base,
  chunkKey,
  damageOf,
  decodeChunk,
  decodeSegment,
  failDamaged,
  segmentKey,
} from "./format.ts";
import { type ArchivedState, type ArchiveEnd, isSameSegment, readEnd } from "./history.ts";
import { writeMarker } from "./marker.ts";
import { copyWal } from "./wal-lock.ts";
import type { WalPosition } from "./wal-reader.ts";

/** Bounds of the downloads at the same time: small ones wait for the network, large ones take memory. */
const MAX_DOWNLOADS = 64;
const MAX_DOWNLOAD_BYTES = 32 * 2 ** 20;
const CHUNK_MARGIN_BYTES = 64 * 2 ** 10;

interface Download {
  readonly key: string;
  /** At most, if it is not damaged. */
  readonly bytes: number;
}

/** Downloads several objects ahead. @throws {AppError} operator if one is missing */
async function* download(storage: ObjectStorage, downloads: readonly Download[]) {
  const pending: ReturnType<ObjectStorage["get"]>[] = [];
  let pendingBytes = 0;
  let next = 0;
  for (const { key, bytes } of downloads) {
    for (; pending.length < MAX_DOWNLOADS; next += 1) {
      const following = downloads[next];
      if (following === undefined) break;
      if (pending.length > 0 && pendingBytes + following.bytes > MAX_DOWNLOAD_BYTES) break;
      const started = storage.get(following.key, Math.min(following.bytes, MAX_OBJECT_BYTES));
      // It is awaited later. Until then a failure must not count as unhandled.
      started.catch(() => {});
      pending.push(started);
      pendingBytes += following.bytes;
    }
    const object = await pending.shift();
    pendingBytes -= bytes;
    yield { key, body: object?.body ?? failDamaged(key, "is missing") };
  }
}

function writeFully(descriptor: number, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length; ) at += writeSync(descriptor, bytes, at);
}

async function fetchBase(storage: ObjectStorage, base: Base, path: string): Promise<void> {
  // What does not become smaller by compression becomes a little larger.
  const downloads = base.chunks.map(({ bytes }, at) => ({
    key: chunkKey(base, at),
    bytes: bytes + CHUNK_MARGIN_BYTES,
  }));
  // An attempt with a newer base may have left files.
  discard(path);
  const descriptor = openSync(path, "wx", PRIVATE_MODE);
  try {
    let at = 0;
    for await (const { key, body } of download(storage, downloads)) {
      const chunk = base.chunks[at] ?? failDamaged(key, "is missing");
      writeFully(descriptor, decodeChunk(key, body, chunk));
      at += 1;
    }
  } finally {
    closeSync(descriptor);
  }
}

/** @returns the number of frames up to the last commit; `null` if none of these frames is one */
function lastCommit(bytes: Buffer, first: number, frameBytes: number): number | null {
  for (let at = bytes.length - frameBytes; at >= first; at -= frameBytes) {
    if (isCommit(bytes, at)) return (at - first) / frameBytes + 1;
  }
  return null;
}

/** A WAL that is being rebuilt. */
interface PartialWal {
  readonly descriptor: number;
  readonly salt: string;
  readonly frameBytes: number;
  offset: number;
  /** Frames up to the last commit. */
  frames: number;
}

/** Lets SQLite copy the WAL to the database, which verifies its checksums. */
function applyWal(path: string, frames: number): void {
  {
    using db = connect(path);
    // If this is interrupted, it begins again with a new file.
    db.run("pragma synchronous = off");
    if (copyWal(db) !== frames)
      fail("operator", "the archive is damaged: SQLite rejects a part of the WAL");
  }
  rmSync(path + suffixes.wal, { force: true });
  rmSync(path + suffixes.shm, { force: true });
}

/** Appends parts of the WAL, and applies it at each restart. */
function createWalWriter(path: string) {
  let wal: PartialWal | null = null;

  function close(): PartialWal | null {
    const closed = wal;
    wal = null;
    if (closed !== null) closeSync(closed.descriptor);
    return closed;
  }

  function finish(): void {
    const closed = close();
    if (closed !== null) applyWal(path, closed.frames);
  }

  function restart(salt: string, bytes: Buffer): PartialWal {
    finish();
    const descriptor = openSync(path + suffixes.wal, "wx", PRIVATE_MODE);
    const frameBytes = FRAME_HEADER_BYTES + bytes.readUInt32BE(8);
    wal = { descriptor, salt, frameBytes, offset: 0, frames: 0 };
    return wal;
  }

  return {
    finish,
    /** @returns whether the part continues the one before it */
    append({ salt, offset }: Pick<WalPosition, "salt" | "offset">, bytes: Buffer): boolean {
      if (bytes.length < WAL_HEADER_BYTES || (wal?.salt !== salt && offset !== 0)) return false;
      const current = wal?.salt === salt ? wal : restart(salt, bytes);
      if (offset !== current.offset) return false;
      const first = offset === 0 ? WAL_HEADER_BYTES : 0;
      const before = (offset + first - WAL_HEADER_BYTES) / current.frameBytes;
      const committed = lastCommit(bytes, first, current.frameBytes);
      if (committed !== null) current.frames = before + committed;
      writeFully(current.descriptor, bytes);
      current.offset += bytes.length;
      return true;
    },
    [Symbol.dispose]: () => void close(),
  };
}

function isSamePosition(one: WalPosition | null, other: WalPosition): boolean {
  return one?.salt === other.salt && one.offset === other.offset && one.checksum === other.checksum;
}

async function applySegments(
  storage: ObjectStorage,
  { state: { segments }, damage: earlier }: FoundState,
  path: string,
  contents: Contents,
): Promise<void> {
  using wal = createWalWriter(path);
  const downloads = segments.map((segment) => ({ key: segmentKey(segment), bytes: segment.bytes }));
  let previous: WalPosition | null = null;
  let applied = 0;
  try {
    for await (const { key, body } of download(storage, downloads)) {
      const { header, bytes } = decodeSegment(key, body);
      const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
      // A part at the beginning of the WAL does not say by itself what was in the WAL before it was restarted.
      const follows: boolean = previous === null || isSamePosition(header.previous, previous);
      if (!follows || !wal.append(header, buffer))
        failDamaged(key, "does not continue the one before it");
      previous = header.end;
      applied += 1;
    }
  } catch (error) {
    const damage = damageOf(error);
    const { timeMs } = segments[applied] ?? {};
    if (damage === null || timeMs === undefined) throw error;
    failUnrestorable([...earlier, damage], timeMs - 1, contents);
  }
  wal.finish();
}

/** A database that was restored, and the end of the archive before that. */
export interface Restored {
  readonly state: ArchivedState;
  readonly end: ArchiveEnd | null;
  readonly warnings: FoundState["warnings"];
}

/**
 * Writes a state of the archive to a new file, without a WAL. It is not synced, and not verified as a database. If a base
 * is damaged, an older one and the segments since lead to the same state.
 * @param at a time in the past; `null` for the newest state
 * @throws {AppError} operator if the archive is empty, damaged, or does not reach back to that time
 */
export async function restoreTo(
  path: string,
  storage: ObjectStorage,
  at: Date | null,
): Promise<Restored> {
  const patient = withRetries(storage);
  let contents = await readContents(patient);
  // First: what is written to the archive from now on must look like the work of another server.
  const end = await readEnd(patient, contents);
  for (;;) {
    const found = await findState(patient, contents, at);
    const { state, warnings } = found;
    try {
      await fetchBase(patient, state.base, path);
    } catch (error) {
      const damage = damageOf(error);
      if (damage === null) throw error;
      contents = withDamage(contents, state.base, damage);
      continue;
    }
    await applySegments(patient, found, path, contents);
    return { state, end, warnings };
  }
}

/**
 * Marks a database as one that was restored, so that a server can continue the archive with it.
 * @param isSame whether the file has exactly this state
 */
export function markRestored(path: string, { state, end }: Restored, isSame: boolean): void {
  const last = end?.state?.last ?? null;
  const isNewest = isSame && isSameSegment(state.last, last);
  const complete = isNewest ? { ...state.last, file: fileState(path) } : null;
  const names = end === null ? [] : [end.newest.name];
  writeMarker(path, { names, complete, restored: last, isReplaced: true });
}
