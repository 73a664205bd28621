/** Deletes what an archive no longer needs: never a record, nor the seal of a log. */
import type { ObjectStorage } from "../../domain/object-storage.ts";
import { readCatalog, readGeneration } from "./catalog.ts";
import {
  baseKey,
  chunkPrefix,
  heartbeatKey,
  parseSlotKey,
  prefixes,
  type SegmentId,
  slotKey,
} from "./format.ts";

/** Maximum number of keys that S3 lists per request. */
const LIST_LIMIT = 1000;

/** Deletes the objects with keys before this one, of which a server can write a million in a day. */
async function removeBefore(storage: ObjectStorage, prefix: string, end: string): Promise<void> {
  for (;;) {
    const keys = (await storage.list(prefix, LIST_LIMIT)).map(({ key }) => key);
    const expired = keys.filter((key) => key < end);
    if (expired.length === 0) return;
    await storage.remove(expired);
  }
}

/** @returns the slots of one log that may be deleted: not the seal, nor what may be one because nothing else is left */
async function withoutSeal(storage: ObjectStorage, slots: readonly SegmentId[]) {
  const [slot] = slots;
  if (slot === undefined || slots.length === 1) return [];
  const { previousEnd } = await readGeneration(storage, slot.generation + 1);
  return slots.filter(({ number }) => number !== previousEnd + 1);
}

/**
 * Deletes the slots before this one, except the seal of each log: a server that was suspended since could create that slot
 * again, and acknowledge what nobody can restore.
 */
async function removeSlots(storage: ObjectStorage, first: SegmentId): Promise<void> {
  for (let after = ""; ; ) {
    const keys = (await storage.list(prefixes.log, LIST_LIMIT, after)).map(({ key }) => key);
    const expired = keys.filter((key) => key < slotKey(first)).map(parseSlotKey);
    const slots = expired.filter((slot) => slot !== null);
    for (const own of Map.groupBy(slots, ({ generation }) => generation).values()) {
      const isFirst = own[0]?.generation === first.generation;
      const removed = isFirst ? own : await withoutSeal(storage, own);
      await storage.remove(removed.map(slotKey));
    }
    if (expired.length < LIST_LIMIT) return;
    after = keys.at(-1) ?? "";
  }
}

/**
 * Deletes what is needed only for states before this time. The newest base that can be restored is always kept: it is
 * the oldest one that is needed, or newer than that. Keys are in the order in which servers wrote the objects.
 */
export async function deleteExpired(storage: ObjectStorage, oldestMs: number): Promise<void> {
  const { bases } = await readCatalog(storage);
  const oldest = bases.findLast(({ damage, timeMs }) => damage === null && timeMs <= oldestMs);
  if (oldest === undefined) return;
  // First, so that nobody begins to restore an older one.
  await removeBefore(storage, prefixes.bases, baseKey(oldest));
  // Also those of bases that were never completed.
  await removeBefore(storage, prefixes.chunks, chunkPrefix(oldest));
  await removeSlots(storage, oldest.first);
  await removeBefore(storage, prefixes.heartbeats, heartbeatKey(oldest.generation));
}
