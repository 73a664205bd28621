/** Deletes what an archive no longer needs. */
import { fail } from "../../base/error.ts";
import type { ObjectStorage } from "../../domain/object-storage.ts";
import { basesOf, type Contents, readContents } from "./contents.ts";
import { type Base, baseKey, chunkPrefix, generationKey, prefixes, segmentKey } from "./format.ts";
import type { Problems } from "./problems.ts";

/** Interval at which expired objects are deleted. */
const INTERVAL_MS = 60 * 60 * 1000;
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

/** @returns the newest base of the newest lineage that has one at this time; `undefined` if all of them are newer */
function findOldestNeeded(contents: Contents, atMs: number): Base | undefined {
  return contents.lineages.flatMap((lineage) => basesOf(contents, lineage, atMs))[0];
}

/**
 * Deletes what is needed only for states before this time. The newest base that can be restored is always kept: it is
 * the oldest one that is needed, or newer than that. Keys are in the order in which servers wrote the objects.
 */
export async function deleteExpired(storage: ObjectStorage, oldestMs: number): Promise<void> {
  const contents = await readContents(storage);
  const damaged = contents.bases.find(({ damage }) => damage !== null);
  // Its segments are unknown, and what expires may be needed to repair it.
  if (damaged !== undefined) fail("operator", `the archive is damaged: ${damaged.damage}`);
  const oldest = findOldestNeeded(contents, oldestMs);
  if (oldest === undefined) return;
  const { first } = oldest;
  // First, so that nobody begins to restore an older one.
  await removeBefore(storage, prefixes.bases, baseKey(oldest));
  // Also those of bases that were never completed.
  await removeBefore(storage, prefixes.chunks, chunkPrefix(oldest));
  await removeBefore(storage, prefixes.segments, segmentKey({ ...first, timeMs: 0 }));
  await removeBefore(storage, prefixes.generations, generationKey(first.generation));
}

interface RetentionOptions {
  readonly storage: ObjectStorage;
  /** How far back the archive can restore. */
  readonly keepMs: number;
  readonly nowMs: () => number;
  readonly problems: Problems;
  /** Whether the archive was closed or is that of another server. */
  readonly isOver: () => boolean;
}

/** @returns deletes what has expired, once an hour. It does not wait */
export function createRetention(options: RetentionOptions): () => void {
  const { storage, keepMs, nowMs, problems, isOver } = options;
  let deletedMs = Number.NEGATIVE_INFINITY;
  let isDeleting = false;
  return () => {
    if (isDeleting || nowMs() - deletedMs < INTERVAL_MS) return;
    deletedMs = nowMs();
    isDeleting = true;
    deleteExpired(storage, nowMs() - keepMs)
      .then(
        () => problems.clear("deletion"),
        (error) => {
          if (!isOver()) problems.report("deletion", error);
        },
      )
      .finally(() => {
        isDeleting = false;
      });
  };
}
