/** Deletes what an archive no longer needs. */
import { fail } from "../../error.ts";
import type { ObjectStorage } from "../../object-storage.ts";
import { basesOf, type Contents, listGenerations, readContents } from "./contents.ts";
import {
  type Base,
  baseKey,
  chunkPrefix,
  generationKey,
  LAST_KEY,
  LIST_LIMIT,
  parseBaseKey,
  parseSegmentKey,
  prefixes,
  SEGMENTS_PER_BLOCK,
  type SegmentId,
  segmentBlock,
  segmentPrefix,
} from "./format.ts";
import { isAtOrBefore } from "./history.ts";
import type { Problems } from "./problems.ts";

/** Interval at which expired objects are deleted. */
const INTERVAL_MS = 60 * 60 * 1000;
/** Age of the chunks of a base that was never completed. A server writes one within this time. */
const INCOMPLETE_MS = 24 * 60 * 60 * 1000;

/** As many at once as a block has: a generation can have millions. */
async function removeAll(storage: ObjectStorage, prefix: string): Promise<void> {
  for (let count = LIST_LIMIT; count === LIST_LIMIT; ) {
    const objects = await storage.list(prefix, LIST_LIMIT);
    await storage.remove(objects.map(({ key }) => key));
    count = objects.length;
  }
}

/** Deletes the segments of a generation before this one. Those before the first block without any are gone already. */
async function removeBefore(storage: ObjectStorage, first: SegmentId): Promise<void> {
  const blocks: string[] = [];
  for (let number = first.number - SEGMENTS_PER_BLOCK; number >= 0; number -= SEGMENTS_PER_BLOCK) {
    const block = segmentBlock({ ...first, number });
    if ((await storage.list(block, 1)).length === 0) break;
    blocks.push(block);
  }
  // The oldest ones first, so that an interrupted deletion is repeated.
  for (const block of blocks.reverse()) await removeAll(storage, block);
  const objects = await storage.list(segmentBlock(first));
  const old = objects.filter(
    ({ key }) => (parseSegmentKey(key)?.number ?? first.number) < first.number,
  );
  await storage.remove(old.map(({ key }) => key));
}

async function removeBase(storage: ObjectStorage, base: SegmentId): Promise<void> {
  // First, so that nobody begins to restore it.
  await storage.remove([baseKey(base)]);
  await removeAll(storage, chunkPrefix(base));
}

/** Lists no chunks of complete bases but the first ones: they can be a hundred thousand. */
async function removeIncomplete(
  storage: ObjectStorage,
  bases: readonly Base[],
  nowMs: number,
): Promise<void> {
  const complete = new Set(bases.map(chunkPrefix));
  for (let after = prefixes.chunks; ; ) {
    const page = await storage.list(prefixes.chunks, LIST_LIMIT, after);
    const stale: string[] = [];
    for (const { key, modifiedMs } of page) {
      const base = parseBaseKey(key);
      after = key;
      if (base === null) continue;
      if (complete.has(chunkPrefix(base))) {
        after = chunkPrefix(base) + LAST_KEY;
        break;
      }
      if (nowMs - modifiedMs > INCOMPLETE_MS) stale.push(key);
    }
    await storage.remove(stale);
    if (page.length === 0) return;
  }
}

/** @returns the newest base of the newest lineage that has one at this time; `undefined` if all of them are newer */
function findOldestNeeded(contents: Contents, atMs: number): Base | undefined {
  return contents.lineages.flatMap((lineage) => basesOf(contents, lineage, atMs))[0];
}

/**
 * Deletes what is needed only for states before this time. The newest base that can be restored is always kept: it is
 * the oldest one that is needed, or newer than that.
 */
export async function deleteExpired(
  storage: ObjectStorage,
  oldestMs: number,
  nowMs: number,
): Promise<void> {
  const contents = await readContents(storage);
  const { bases } = contents;
  const damaged = bases.find(({ damage }) => damage !== null);
  // Its segments are unknown, and what expires may be needed to repair it.
  if (damaged !== undefined) fail("operator", `the archive is damaged: ${damaged.damage}`);
  await removeIncomplete(storage, bases, nowMs);
  const oldest = findOldestNeeded(contents, oldestMs);
  if (oldest === undefined) return;
  for (const base of bases) if (!isAtOrBefore(oldest, base)) await removeBase(storage, base);
  const { first } = oldest;
  await removeBefore(storage, first);
  for (const number of await listGenerations(storage)) {
    if (number >= first.generation) continue;
    await removeAll(storage, segmentPrefix(number));
    // Last, so that an interrupted deletion is repeated.
    await storage.remove([generationKey(number)]);
  }
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

/** @returns deletes what has expired, once an hour, and when there is another newest base. It does not wait */
export function createRetention(options: RetentionOptions): (newest: Base | null) => void {
  const { storage, keepMs, nowMs, problems, isOver } = options;
  let deletedMs = Number.NEGATIVE_INFINITY;
  /** The newest base at the last deletion. */
  let known: Base | null = null;
  let isDeleting = false;
  return (newest) => {
    if (isDeleting || (newest === known && nowMs() - deletedMs < INTERVAL_MS)) return;
    deletedMs = nowMs();
    known = newest;
    isDeleting = true;
    deleteExpired(storage, nowMs() - keepMs, nowMs())
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
