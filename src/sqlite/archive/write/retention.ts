/** Deletes what an archive no longer needs: never a record, nor the seal of a log. */
import { mapBounded, type ObjectStorage } from "../../../domain/object-storage.ts";
import type { ObjectId } from "../keys.ts";
import { baseKey, chunkPrefix, heartbeatKey, parseKey, prefixes, slotKey } from "../keys.ts";
import { readCatalog, readGeneration } from "../read/catalog.ts";
import type { GenerationWriter } from "./segments.ts";

const INTERVAL_MS = 60 * 60 * 1000;
/** Maximum number of keys that S3 lists per request. */
const LIST_LIMIT = 1000;

/** Page by page: a server can write a million objects in a day. @param select which of a page; by default all */
async function removeBefore(
  storage: ObjectStorage,
  prefix: string,
  end: string,
  select = async (keys: string[]) => keys,
): Promise<void> {
  for (let after = ""; ; ) {
    const keys = (await storage.list(prefix, LIST_LIMIT, after)).map(({ key }) => key);
    const expired = keys.filter((key) => key < end);
    await storage.remove(await select(expired));
    if (expired.length < LIST_LIMIT) return;
    after = keys.at(-1) ?? "";
  }
}

/** Deletes earlier slots, but not the seals: a server that was suspended could create that slot, and acknowledge it. */
function removeSlots(storage: ObjectStorage, first: ObjectId): Promise<void> {
  return removeBefore(storage, prefixes.log, slotKey(first), async (keys) => {
    const slots = keys.map((key) => parseKey(key)).filter((slot) => slot !== null);
    const logs = Map.groupBy(slots, ({ generation }) => generation);
    const removed = await mapBounded([...logs], async ([generation, own]) => {
      if (generation === first.generation) return own;
      // It may be the seal, because nothing else is left.
      if (own.length === 1) return [];
      const { previousEnd } = await readGeneration(storage, generation + 1);
      return own.filter(({ number }) => number !== previousEnd + 1);
    });
    return removed.flat().map(slotKey);
  });
}

/** Deletes what only earlier states need, but never the newest base that can be restored. Keys are in the order of writing. */
export async function deleteExpired(storage: ObjectStorage, oldestMs: number): Promise<void> {
  const { bases } = await readCatalog(storage);
  const oldest = bases.findLast(({ damage, timeMs }) => damage === null && timeMs <= oldestMs);
  if (oldest === undefined) return;
  // First, so that no restore of an older one begins.
  await removeBefore(storage, prefixes.bases, baseKey(oldest));
  // Also those of bases that were never completed.
  await removeBefore(storage, prefixes.chunks, chunkPrefix(oldest));
  await removeSlots(storage, oldest.first);
  await removeBefore(storage, prefixes.heartbeats, heartbeatKey(oldest.generation));
}

/** Begins to delete what has expired, once an hour. It does not wait. */
export function deleteIfDue(writer: GenerationWriter): void {
  const { ownLog, archive, deletedMs } = writer;
  const { storage, problems, machine, settledMs, keepMs } = archive;
  const oldestMs = settledMs() - keepMs;
  const nowMs = machine.monotonicMs();
  if (ownLog.isEnded() || oldestMs < 0 || nowMs - deletedMs < INTERVAL_MS) return;
  writer.deletedMs = nowMs;
  void problems.run("deletion", ownLog.isEnded, () => deleteExpired(storage, oldestMs));
}
