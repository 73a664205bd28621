/** Rebuilds a database from its archive. */
import { closeSync, openSync, writeSync } from "node:fs";
import { MAX_OBJECT_BYTES, type ObjectStorage, withRetries } from "../../domain/object-storage.ts";
import { discard, fileState, PRIVATE_MODE } from "../file/files.ts";
import {
  type Catalog,
  type History,
  isAtOrBefore,
  isSameSegment,
  readCatalog,
  readNewestHistory,
  withDamage,
} from "./catalog.ts";
import { type Base, damageOf, decodeChunk, decodeSegment, failDamaged } from "./format.ts";
import { chunkKey, type SegmentId, slotKey } from "./keys.ts";
import { readHead } from "./log.ts";
import { writeMarker } from "./marker.ts";
import { type FoundState, failUnrestorable, findState } from "./restorable.ts";
import { isSamePosition, type WalPosition } from "./wal-reader.ts";
import { createWalWriter } from "./wal-writer.ts";

/** Bounds of the downloads at the same time: small ones wait for the network, large ones take memory. */
const MAX_DOWNLOADS = 64;
const MAX_DOWNLOAD_BYTES = 32 * 2 ** 20;
const CHUNK_MARGIN_BYTES = 64 * 2 ** 10;
/** How long nothing may arrive, after something has. */
const PATIENCE_MS = 180_000;

interface Download {
  readonly key: string;
  /** At most, if it is not damaged. */
  readonly maxBytes: number;
}

/** Downloads several objects ahead. @throws {AppError} operator if one is missing */
async function* download<Item extends Download>(storage: ObjectStorage, items: readonly Item[]) {
  const pending: ReturnType<ObjectStorage["get"]>[] = [];
  let pendingBytes = 0;
  let next = 0;
  for (const item of items) {
    for (; pending.length < MAX_DOWNLOADS; next += 1) {
      const following = items[next];
      if (following === undefined) break;
      const { key, maxBytes } = following;
      if (pending.length > 0 && pendingBytes + maxBytes > MAX_DOWNLOAD_BYTES) break;
      const started = storage.get(key, Math.min(maxBytes, MAX_OBJECT_BYTES));
      // It is awaited later. Until then a failure must not count as unhandled.
      started.catch(() => {});
      pending.push(started);
      pendingBytes += maxBytes;
    }
    const body = await pending.shift();
    pendingBytes -= item.maxBytes;
    yield { item, body: body ?? failDamaged(item.key, "is missing") };
  }
}

async function fetchBase(storage: ObjectStorage, base: Base, path: string): Promise<void> {
  const chunks = base.chunks.map((chunk, at) => ({
    ...chunk,
    key: chunkKey(base, at),
    // What does not become smaller by compression becomes a little larger.
    maxBytes: chunk.bytes + CHUNK_MARGIN_BYTES,
  }));
  // An attempt with a newer base may have left files.
  discard(path);
  const descriptor = openSync(path, "wx", PRIVATE_MODE);
  try {
    for await (const { item, body } of download(storage, chunks)) {
      const bytes = decodeChunk(item.key, body, item);
      for (let done = 0; done < bytes.length; ) done += writeSync(descriptor, bytes, done);
    }
  } finally {
    closeSync(descriptor);
  }
}

/**
 * What was written while the clock was ahead has a later time than what follows it.
 * @returns the last segment of the base, or a later one that was written until this time, from which on times ascend
 */
async function findNeeded(storage: ObjectStorage, { base, segments }: History, atMs: number) {
  for (let end = Number.isFinite(atMs) ? segments.length - 1 : -1; end >= 0; ) {
    const last = await readHead(storage, segments[end] ?? base.last);
    const length = last?.kind === "segment" ? last.number - (last.ascendsFrom ?? 1) : 0;
    const first = await readHead(storage, segments[Math.max(0, end - length)] ?? base.last);
    if (first !== null && first.timeMs <= atMs)
      return isAtOrBefore(first, base.last) ? base.last : first;
    end -= length + 1;
  }
  return base.last;
}

/** @returns the time of the state: it has all commits up to it */
async function applySegments(
  storage: ObjectStorage,
  { history, damage: earlier }: FoundState,
  path: string,
  atMs: number,
  catalog: Catalog,
): Promise<{ timeMs: number; last: SegmentId }> {
  const { base, segments } = history;
  const needed = await findNeeded(storage, history, atMs);
  using wal = createWalWriter(path);
  const parts = segments.map((id) => ({ ...id, key: slotKey(id), maxBytes: id.bytes }));
  let previous: WalPosition | null = null;
  let { timeMs } = base;
  let last: SegmentId = { ...base.first, number: base.first.number - 1 };
  try {
    for await (const { item, body } of download(storage, parts)) {
      const { header, bytes } = decodeSegment(item, body);
      // Nothing after it, whatever its time: a part of the WAL needs all parts before it.
      if (header.timeMs > atMs && !isAtOrBefore(item, needed)) break;
      // A part at the beginning of the WAL does not say by itself what was in the WAL before it was restarted.
      const follows: boolean = previous === null || isSamePosition(header.previous, previous);
      if (!follows || !wal.append(header, bytes))
        failDamaged(item.key, "does not continue the one before it");
      previous = header.end;
      if (!isAtOrBefore(item, base.last)) timeMs = header.timeMs;
      last = { generation: item.generation, number: item.number };
    }
  } catch (error) {
    const damage = damageOf(error);
    if (damage === null) throw error;
    const isBase = !isAtOrBefore(base.last, last);
    // The next segment was written later.
    if (timeMs < atMs || !isAtOrBefore(needed, last))
      failUnrestorable([...earlier, damage], isBase ? base.timeMs - 1 : timeMs, catalog);
  }
  wal.finish();
  return { timeMs, last };
}

/** A database that was restored, and the end of the archive before that. */
export interface Restored {
  /** The database has all commits up to this time. */
  readonly timeMs: number;
  readonly last: SegmentId;
  readonly catalog: Catalog;
  /** Of the newest state. */
  readonly newest: History | null;
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
  from: ObjectStorage,
  at: Date | null,
): Promise<Restored> {
  const storage = withRetries(from, PATIENCE_MS);
  let catalog = await readCatalog(storage);
  // First: what is written to the archive from now on must look like the work of another server.
  const earlier = at === null ? null : await readNewestHistory(storage, catalog);
  for (;;) {
    const found = await findState(storage, catalog, at);
    const newest: History | null = at === null ? found.history : earlier;
    const { base } = found.history;
    try {
      await fetchBase(storage, base, path);
    } catch (error) {
      const damage = damageOf(error);
      if (damage === null) throw error;
      catalog = withDamage(catalog, base, damage);
      continue;
    }
    const atMs = at?.getTime() ?? Number.POSITIVE_INFINITY;
    const applied = await applySegments(storage, found, path, atMs, catalog);
    return { ...applied, catalog, newest, warnings: found.warnings };
  }
}

/**
 * Marks a file that is to replace a database as one that was restored, so that a server can continue the archive with it,
 * as long as the archive ends where it did.
 * @param isSame whether the file has exactly this state
 */
export function markRestored(path: string, restored: Restored, isSame: boolean, file: string) {
  const { last, newest: history } = restored;
  const { newest: number, generations } = restored.catalog;
  const newest = generations.get(number);
  const isNewest = isSame && isSameSegment(last, history?.last ?? null);
  const continued = history === null ? undefined : generations.get(history.lastGeneration);
  const names = [newest, continued].flatMap((record) => record?.name ?? []);
  const marker = {
    archive: newest?.archive ?? null,
    names: [],
    complete: isNewest ? { ...last, file: fileState(file) } : null,
    restored: { names, last: history?.last ?? null },
    isCopy: false,
  };
  writeMarker(path, marker, file);
}
