/** Reads how far an archive goes: its bases, and the segments that lead from each to a later state. */
import type { ObjectStorage } from "../../domain/object-storage.ts";
import { basesOf, type Contents, type Lineage, type StoredBase } from "./contents.ts";
import {
  baseKey,
  decodeSegment,
  type Generation,
  parseSegmentKey,
  SEGMENTS_PER_BLOCK,
  type SegmentHeader,
  type SegmentId,
  type SegmentKey,
  segmentBlock,
  segmentKey,
  segmentPrefix,
} from "./format.ts";

interface StoredSegment extends SegmentKey {
  /** As stored: compressed. */
  readonly bytes: number;
}

/** A state of the database: a base, and all segments up to one. */
export interface ArchivedState {
  readonly base: StoredBase;
  readonly segments: readonly StoredSegment[];
  /** The last segment, which may be that before the first one. */
  readonly last: SegmentId;
  /** The state has all commits up to this time. */
  readonly timeMs: number;
}

/** What of a lineage can be restored. */
export interface History {
  /** The newest state; `null` if there is no base. */
  readonly state: ArchivedState | null;
  /** The segment after that state, if it is missing and was in the archive; `null` if the history goes no further. */
  readonly missing: SegmentId | null;
  /** What is damaged of each base that is newer than that of the state, by the key of the base. */
  readonly damaged: ReadonlyMap<string, string>;
}

/** The history of the newest lineage. */
export interface ArchiveEnd extends History {
  /** The newest generation, which may have nothing that can be restored yet. */
  readonly newest: Generation;
}

/**
 * @returns the segments of one generation from this one on, sorted; some may be missing. After a block without any, only
 * the first one that follows is listed, which shows that the block is missing
 */
async function listGeneration(storage: ObjectStorage, from: SegmentId): Promise<StoredSegment[]> {
  const segments: StoredSegment[] = [];
  for (let { number } = from; ; number += SEGMENTS_PER_BLOCK) {
    const prefix = segmentBlock({ ...from, number });
    const block = await storage.list(prefix);
    const isEmpty = block.length === 0;
    if (isEmpty) block.push(...(await storage.list(segmentPrefix(from.generation), 1, prefix)));
    for (const { key, bytes } of block) {
      const segment = parseSegmentKey(key);
      if (segment !== null && segment.number >= from.number) segments.push({ ...segment, bytes });
    }
    if (isEmpty) break;
  }
  // Not in the order of the list, which a storage may get wrong.
  return segments.sort((a, b) => a.number - b.number);
}

/** @returns the header of a segment; `null` if the segment is damaged */
export async function readSound(
  storage: ObjectStorage,
  segment: SegmentKey,
): Promise<SegmentHeader | null> {
  const key = segmentKey(segment);
  const object = await storage.get(key);
  try {
    return object === null ? null : decodeSegment(key, object.body).header;
  } catch {
    return null;
  }
}

/**
 * Several segments are sent at the same time, so that after a crash, one may be missing before the last ones, none of
 * which was confirmed then.
 * @param later segments of the same generation
 * @returns whether a missing segment was in the archive when a later one was written, or that cannot be found out
 */
async function wasStored(storage: ObjectStorage, number: number, later: readonly SegmentKey[]) {
  for (const segment of later) {
    const header = await readSound(storage, segment);
    if (header === null || header.stored >= number) return true;
  }
  return false;
}

/**
 * Lists the segments of a lineage, up to the first one that is missing.
 * @param first the first segment to list. It may not exist yet.
 * @param stored number of a segment of the last generation that is known to have been in the archive, with all before it
 */
async function listSegments(
  storage: ObjectStorage,
  lineage: Lineage,
  first: SegmentId,
  stored: number,
): Promise<{ segments: StoredSegment[]; missing: SegmentId | null }> {
  const segments: StoredSegment[] = [];
  for (const [at, { number: generation }] of lineage.entries()) {
    if (generation < first.generation) continue;
    const from = generation === first.generation ? first : { generation, number: 1 };
    const end = lineage[at + 1]?.parent?.number ?? null;
    const listed = await listGeneration(storage, from);
    const own = end === null ? listed : listed.filter(({ number }) => number <= end);
    const whole = own.filter(({ number }, index) => number === from.number + index);
    segments.push(...whole);
    const next = { generation, number: from.number + whole.length };
    const isMissing =
      next.number <= (end ?? stored) ||
      (end === null && (await wasStored(storage, next.number, own.slice(whole.length))));
    if (isMissing) return { segments, missing: next };
  }
  return { segments, missing: null };
}

export function isSameSegment(one: SegmentId | null, other: SegmentId | null): boolean {
  return one?.generation === other?.generation && one?.number === other?.number;
}

/** @returns whether the segment is at or before the other one in the same lineage; bases are compared in the same way */
export function isAtOrBefore(segment: SegmentId, other: SegmentId): boolean {
  if (segment.generation !== other.generation) return segment.generation < other.generation;
  return segment.number <= other.number;
}

export function stateOf(base: StoredBase, segments: readonly StoredSegment[]): ArchivedState {
  // The segment before the first one may not exist.
  const before = { ...base.first, number: base.first.number - 1, timeMs: 0 };
  const { generation, number, timeMs } = segments.at(-1) ?? before;
  return {
    base,
    segments,
    last: { generation, number },
    timeMs: Math.max(base.timeMs, timeMs),
  };
}

/** @param atMs only with bases that were complete at this time */
export async function readHistory(
  storage: ObjectStorage,
  contents: Contents,
  lineage: Lineage,
  atMs?: number,
): Promise<History> {
  const bases = basesOf(contents, lineage, atMs);
  const lasts = bases.filter(({ last }) => last.generation === lineage.at(-1)?.number);
  const stored = Math.max(0, ...lasts.map(({ last }) => last.number));
  const damaged = new Map<string, string>();
  let missing: SegmentId | null = null;
  for (const base of bases) {
    if (base.damage !== null) {
      damaged.set(baseKey(base), base.damage);
      continue;
    }
    const listed = await listSegments(storage, lineage, base.first, stored);
    missing = listed.missing;
    // If it cannot be restored, an older one may have what is before the gap.
    if (missing === null || !isAtOrBefore(missing, base.last))
      return { state: stateOf(base, listed.segments), missing, damaged };
  }
  return { state: null, missing, damaged };
}

/** @returns `null` if the archive is empty */
export async function readEnd(
  storage: ObjectStorage,
  contents: Contents,
): Promise<ArchiveEnd | null> {
  const [lineage] = contents.lineages;
  const newest = lineage?.at(-1);
  if (lineage === undefined || newest === undefined) return null;
  return { newest, ...(await readHistory(storage, contents, lineage)) };
}

export function nameOf({ generation, number }: SegmentId): string {
  return `segment ${number} of generation ${generation}`;
}
