import { AppError } from "../../../base/error.ts";
import type { ObjectStorage } from "../../../domain/object-storage.ts";
import { MAX_OBJECT_BYTES, withRetries } from "../../../domain/object-storage.ts";
import type { ServerContext } from "../context.ts";
import { damageOf, decodeChunk, decodeSegment, failDamaged } from "../format.ts";
import { chunkKey, isAtOrBefore, isSameSegment, type ObjectId, shift, slotKey } from "../keys.ts";
import type { ArchiveMarker, Machine, RestoreTarget, WalPosition } from "../machine.ts";
import { isSamePosition } from "../machine.ts";
import type { FoundState, History } from "./catalog.ts";
import { failUnrestorable, findState, readCatalog, readNewestHistory } from "./catalog.ts";

/** Bounds of the downloads at the same time: small ones wait for the network, large ones take memory. */
const MAX_DOWNLOADS = 64;
const MAX_DOWNLOAD_BYTES = 32 * 2 ** 20;
const CHUNK_MARGIN_BYTES = 64 * 2 ** 10;
/** How long nothing may arrive, after something has. */
const PATIENCE_MS = 180_000;

/** Downloads several objects ahead, whose sizes are known if none is damaged. @throws {AppError} operator if one is missing */
async function* download<Item extends { readonly key: string; readonly maxBytes: number }>(
  storage: ObjectStorage,
  items: readonly Item[],
) {
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

async function fetchBase({ catalog, base }: History, target: RestoreTarget | null): Promise<void> {
  const chunks = base.chunks.map((chunk, at) => ({
    ...chunk,
    key: chunkKey(base, at),
    // What does not become smaller by compression becomes a little larger.
    maxBytes: chunk.bytes + CHUNK_MARGIN_BYTES,
  }));
  target?.beginFile();
  for await (const { item, body } of download(catalog.storage, chunks)) {
    const bytes = decodeChunk(item.key, body, item);
    target?.appendFile(bytes);
  }
}

/** @returns the time of the state: it has all commits up to it */
async function applySegments(
  { history, needed, damage: earlier }: FoundState,
  target: RestoreTarget | null,
  atMs: number,
): Promise<{ timeMs: number; last: ObjectId }> {
  const { catalog, base, segments } = history;
  const parts = segments.map((id) => ({ ...id, key: slotKey(id), maxBytes: id.bytes }));
  let previous: WalPosition | null = null;
  let { timeMs } = base;
  let last = shift(base.first, -1);
  try {
    for await (const { item, body } of download(catalog.storage, parts)) {
      const { header, bytes } = decodeSegment(item, body);
      // Nothing after it, whatever its time: a part of the WAL needs all parts before it.
      if (header.timeMs > atMs && !isAtOrBefore(item, needed)) break;
      // A part at the beginning of the WAL does not say by itself what was in the WAL before it was restarted.
      const follows: boolean = previous === null || isSamePosition(header.previous, previous);
      if (!follows || target?.appendWal(header, bytes) === false)
        failDamaged(item.key, "does not continue the one before it");
      previous = header.end;
      if (!isAtOrBefore(item, base.last)) timeMs = header.timeMs;
      last = shift(item, 0);
    }
  } catch (error) {
    const damage = damageOf(error);
    if (damage === null) throw error;
    const isBase = !isAtOrBefore(base.last, last);
    // The next segment was written later.
    if (timeMs < atMs || !isAtOrBefore(needed, last))
      failUnrestorable([...earlier, damage], isBase ? base.timeMs - 1 : timeMs, catalog);
  }
  target?.endWal();
  return { timeMs, last };
}

/** A database that was restored: its time and its last segment, and the newest state of the archive before that. */
export type Restored = Awaited<ReturnType<typeof restoreTo>>;

/**
 * @param target `null` if it is only read. @param at `null` for the newest state. Instead of a damaged base, an older one is used
 * @throws {AppError} operator if the archive is empty, damaged, or does not reach back to that time
 */
export async function restoreTo(
  target: RestoreTarget | null,
  machine: Machine,
  from: ObjectStorage,
  at: Date | null,
) {
  const storage = withRetries(from, machine, { stillMs: PATIENCE_MS });
  const atMs = at?.getTime() ?? Number.POSITIVE_INFINITY;
  let catalog = await readCatalog(storage);
  // First: what is written to the archive from now on must look like the work of another server.
  const earlier = at === null ? null : await readNewestHistory(catalog);
  for (;;) {
    const found = await findState(catalog, atMs);
    const { base } = found.history;
    try {
      await fetchBase(found.history, target);
    } catch (error) {
      const damage = damageOf(error);
      if (damage === null) throw error;
      const bases = catalog.bases.map((each) => (each === base ? { ...each, damage } : each));
      catalog = { ...catalog, bases };
      continue;
    }
    const applied = await applySegments(found, target, atMs);
    const newest = at === null ? found.history : earlier;
    return { ...applied, catalog, newest, warnings: found.warnings };
  }
}

/** @param slot `null` for anything else that the newest state needs. @returns whether it is missing or damaged */
export async function isUnreadable({ storage, machine }: ServerContext, slot: ObjectId | null) {
  try {
    if (slot === null) await restoreTo(null, machine, storage, null);
    else decodeSegment(slot, (await storage.get(slotKey(slot))) ?? failDamaged("it", "is missing"));
    return false;
  } catch (error) {
    if (error instanceof AppError && error.code === "operator") return true;
    throw error;
  }
}

/** @param isSame whether the file has exactly this state. @returns a marker that counts as long as the archive ends there */
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
