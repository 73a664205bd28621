/** Rebuilds a database from its archive. */

import { AppError } from "../../../base/error.ts";
import {
  MAX_OBJECT_BYTES,
  type ObjectStorage,
  withRetries,
} from "../../../domain/object-storage.ts";
import { type Base, damageOf, decodeChunk, decodeSegment, failDamaged } from "../format.ts";
import { baseKey, chunkKey, type SegmentId, slotKey } from "../keys.ts";
import {
  type ArchiveMarker,
  isSamePosition,
  type Machine,
  type RestoreTarget,
  type WalPosition,
} from "../machine.ts";
import {
  type Catalog,
  type FoundState,
  failUnrestorable,
  findState,
  type History,
  isAtOrBefore,
  isSameSegment,
  readCatalog,
  readNewestHistory,
  type StoredBase,
} from "./catalog.ts";

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

/** @returns the catalog, one base of which was found to be damaged */
function withDamage(catalog: Catalog, base: StoredBase, damage: string): Catalog {
  const mark = (each: StoredBase) => (baseKey(each) === baseKey(base) ? { ...each, damage } : each);
  return { ...catalog, bases: catalog.bases.map(mark) };
}

async function fetchBase(storage: ObjectStorage, base: Base, target: RestoreTarget): Promise<void> {
  const chunks = base.chunks.map((chunk, at) => ({
    ...chunk,
    key: chunkKey(base, at),
    // What does not become smaller by compression becomes a little larger.
    maxBytes: chunk.bytes + CHUNK_MARGIN_BYTES,
  }));
  target.beginFile();
  for await (const { item, body } of download(storage, chunks))
    target.appendFile(decodeChunk(item.key, body, item));
}

/** @returns the time of the state: it has all commits up to it */
async function applySegments(
  storage: ObjectStorage,
  { history, needed, damage: earlier }: FoundState,
  target: RestoreTarget,
  atMs: number,
  catalog: Catalog,
): Promise<{ timeMs: number; last: SegmentId }> {
  const { base, segments } = history;
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
      if (!follows || !target.appendWal(header, bytes))
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
  target.endWal();
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
 * Writes a state of the archive. If a base is damaged, an older one and the segments since lead to the same state.
 * @param at a time in the past; `null` for the newest state
 * @throws {AppError} operator if the archive is empty, damaged, or does not reach back to that time
 */
export async function restoreTo(
  target: RestoreTarget,
  machine: Machine,
  from: ObjectStorage,
  at: Date | null,
): Promise<Restored> {
  const storage = withRetries(from, machine, { stillMs: PATIENCE_MS });
  let catalog = await readCatalog(storage);
  // First: what is written to the archive from now on must look like the work of another server.
  const earlier = at === null ? null : await readNewestHistory(storage, catalog);
  for (;;) {
    const found = await findState(storage, catalog, at);
    const newest: History | null = at === null ? found.history : earlier;
    const { base } = found.history;
    try {
      await fetchBase(storage, base, target);
    } catch (error) {
      const damage = damageOf(error);
      if (damage === null) throw error;
      catalog = withDamage(catalog, base, damage);
      continue;
    }
    const atMs = at?.getTime() ?? Number.POSITIVE_INFINITY;
    const applied = await applySegments(storage, found, target, atMs, catalog);
    return { ...applied, catalog, newest, warnings: found.warnings };
  }
}

const NOWHERE: RestoreTarget = {
  beginFile() {},
  appendFile() {},
  appendWal: () => true,
  endWal() {},
  [Symbol.dispose]() {},
};

/** @param slot `null` for anything else that the newest state needs. @returns whether it is missing or damaged */
export async function isUnreadable(
  storage: ObjectStorage,
  machine: Machine,
  slot: SegmentId | null,
): Promise<boolean> {
  try {
    if (slot === null) await restoreTo(NOWHERE, machine, storage, null);
    else decodeSegment(slot, (await storage.get(slotKey(slot))) ?? failDamaged("it", "is missing"));
    return false;
  } catch (error) {
    if (error instanceof AppError && error.code === "operator") return true;
    throw error;
  }
}

/**
 * @param isSame whether the file has exactly this state
 * @param file the state of the file
 * @returns a marker with which a server can continue the archive, as long as that ends where it did
 */
export function markerOfRestored(restored: Restored, isSame: boolean, file: string): ArchiveMarker {
  const { last, newest: history } = restored;
  const { newest: number, generations } = restored.catalog;
  const newest = generations.get(number);
  const isNewest = isSame && isSameSegment(last, history?.last ?? null);
  const continued = history === null ? undefined : generations.get(history.lastGeneration);
  const names = [newest, continued].flatMap((record) => record?.name ?? []);
  return {
    archive: newest?.archive ?? null,
    names: [],
    complete: isNewest ? { ...last, file } : null,
    restored: { names, last: history?.last ?? null },
    isCopy: false,
  };
}
