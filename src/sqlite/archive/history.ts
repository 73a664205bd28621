/** Finds out what an archive has: its bases, and the segments that lead from each to the newest state. */
import type { ObjectStorage } from "../../object-storage.ts";
import {
  type Base,
  decodeJson,
  decodeSegment,
  decodeSegmentHeader,
  failDamaged,
  type Generation,
  LIST_BLOCK,
  parseBaseKey,
  parseGenerationKey,
  parseSegmentKey,
  prefixes,
  type SegmentHeader,
  type SegmentId,
  type SegmentKey,
  segmentBlock,
  segmentKey,
} from "./format.ts";
import type { WalPosition } from "./wal-reader.ts";

type Storage = Pick<ObjectStorage, "get" | "list">;

/** A generation and the ones that it continues, oldest first. Each but the last ends where the next one begins. */
export type Lineage = readonly Generation[];

async function readJson<Value>(storage: Storage, key: string): Promise<Value> {
  const body = await storage.get(key);
  return body === null ? failDamaged(key, "is missing") : decodeJson(key, body);
}

/** @returns the number of the newest generation; 0 if nobody has written to the archive */
export async function newestNumber(storage: Storage): Promise<number> {
  const objects = await storage.list(prefixes.generations);
  return Math.max(0, ...objects.map(({ key }) => parseGenerationKey(key) ?? 0));
}

/** @returns the lineages, newest first. What a generation has written behind the end that the next one saw is no part */
export async function readLineages(storage: Storage): Promise<Lineage[]> {
  const objects = await storage.list(prefixes.generations);
  const generations = new Map<number, Generation>();
  for (const { key } of objects) {
    const number = parseGenerationKey(key);
    if (number === null) continue;
    generations.set(number, await readJson<Generation>(storage, key));
  }
  const lineages: Lineage[] = [];
  const numbers = [...generations.keys()].sort((a, b) => a - b);
  for (let next = numbers.pop(); next !== undefined; ) {
    const lineage: Generation[] = [];
    let current = generations.get(next);
    while (current !== undefined) {
      lineage.unshift(current);
      current = current.parent === null ? undefined : generations.get(current.parent.generation);
    }
    lineages.push(lineage);
    // What is between the generations of a lineage was abandoned.
    const oldest = lineage[0]?.number ?? 0;
    next = numbers.pop();
    while (next !== undefined && next >= oldest) next = numbers.pop();
  }
  return lineages;
}

/** @returns whether the archive has anything that can be restored */
export async function hasBase(storage: Storage): Promise<boolean> {
  const objects = await storage.list(prefixes.bases);
  return objects.some(({ key }) => parseBaseKey(key) !== null);
}

/** @returns all bases that are complete, oldest first */
export async function readBases(storage: Storage): Promise<Base[]> {
  const objects = await storage.list(prefixes.bases);
  const bases: Base[] = [];
  for (const { key } of objects) {
    const id = parseBaseKey(key);
    if (id !== null) bases.push({ ...(await readJson<Base>(storage, key)), ...id });
  }
  return bases;
}

/** @returns whether a segment is in the history of a lineage, and not behind the end of its generation */
function isPartOf({ generation, number }: SegmentId, lineage: Lineage): boolean {
  const at = lineage.findIndex((each) => each.number === generation);
  if (at === -1) return false;
  return number <= (lineage[at + 1]?.parent?.number ?? Number.POSITIVE_INFINITY);
}

/**
 * @param bases oldest first
 * @returns the newest base of a lineage at this time; `null` if there is none
 */
export function newestBase(bases: readonly Base[], lineage: Lineage, atMs: number): Base | null {
  // Its first segment may not exist, when nothing was in the WAL: then the lineage may go on before that one.
  return bases.findLast(({ last, timeMs }) => isPartOf(last, lineage) && timeMs <= atMs) ?? null;
}

/** @returns the segments of one generation from this one on, sorted; some may be missing */
async function listGeneration(storage: Storage, from: SegmentId): Promise<SegmentKey[]> {
  const segments: SegmentKey[] = [];
  for (let { number } = from; ; number += LIST_BLOCK) {
    const block = await storage.list(segmentBlock({ ...from, number }));
    if (block.length === 0) break;
    for (const { key } of block) {
      const segment = parseSegmentKey(key);
      if (segment !== null && segment.number >= from.number) segments.push(segment);
    }
  }
  // Not in the order of the list, which a storage may get wrong.
  return segments.sort((a, b) => a.number - b.number);
}

async function readHeader(storage: Storage, segment: SegmentKey): Promise<SegmentHeader> {
  const key = segmentKey(segment);
  const body = await storage.get(key);
  return body === null ? failDamaged(key, "is missing") : decodeSegmentHeader(key, body);
}

/** @returns the header of a segment; `null` if the segment is damaged */
export async function readSound(
  storage: Storage,
  segment: SegmentKey,
): Promise<SegmentHeader | null> {
  const key = segmentKey(segment);
  const body = await storage.get(key);
  try {
    return body === null ? null : (await decodeSegment(key, body)).header;
  } catch {
    return null;
  }
}

/**
 * Cuts the segments at the first one that is missing. Several are sent at the same time, so that after a crash, one may
 * be missing before the last ones, none of which was confirmed then.
 * @throws {AppError} operator if a segment is missing that was in the archive when a later one was written
 */
async function cutAtGap(
  storage: Storage,
  segments: readonly SegmentKey[],
  from: SegmentId,
): Promise<SegmentKey[]> {
  const whole = segments.filter(({ number }, at) => number === from.number + at);
  const rest = segments.slice(whole.length);
  const missing = from.number + whole.length;
  for (const segment of rest) {
    const { stored } = await readHeader(storage, segment);
    if (stored >= missing)
      failDamaged(`segment ${missing} of generation ${from.generation}`, "is missing");
  }
  return whole;
}

/**
 * Lists the segments of a lineage.
 * @param first the first segment to list. It may not exist yet.
 * @throws {AppError} operator if one is missing in between
 */
export async function listSegments(
  storage: Storage,
  lineage: Lineage,
  first: SegmentId,
): Promise<SegmentKey[]> {
  const segments: SegmentKey[] = [];
  for (const [at, { number: generation }] of lineage.entries()) {
    if (generation < first.generation) continue;
    const from = generation === first.generation ? first : { generation, number: 1 };
    const end = lineage[at + 1]?.parent?.number ?? Number.POSITIVE_INFINITY;
    const listed = await listGeneration(storage, from);
    const own = listed.filter(({ number }) => number <= end);
    const whole = await cutAtGap(storage, own, from);
    const last = whole.at(-1)?.number ?? from.number - 1;
    if (end !== Number.POSITIVE_INFINITY && last < end && from.number <= end)
      failDamaged(`segment ${last + 1} of generation ${generation}`, "is missing");
    segments.push(...whole);
  }
  return segments;
}

/** @returns whether the segment is at or before the other one in the same lineage */
export function isAtOrBefore(segment: SegmentId, other: SegmentId): boolean {
  if (segment.generation !== other.generation) return segment.generation < other.generation;
  return segment.number <= other.number;
}

/** Where a history ends. */
export interface HistoryEnd {
  /** The end of its last segment; `null` if there is none. */
  readonly end: WalPosition | null;
  /** Everything in it was written at or before this time. */
  readonly timeMs: number;
}

/** The end of the newest history that can be restored. */
export interface ArchiveEnd {
  /** The newest generation, which may have nothing that can be restored yet. */
  readonly newest: Generation;
  /** Its last segment, or the last one of those that it continues; `null` if there is none. */
  readonly last: SegmentKey | null;
  readonly timeMs: number;
  /** The number of the next segment, and what it continues. */
  readonly parent: SegmentId | null;
  /** The newest base of the lineage; `null` if there is none. */
  readonly base: Base | null;
}

/** @returns `null` if the archive is empty */
export async function readEnd(storage: Storage): Promise<ArchiveEnd | null> {
  const [lineage] = await readLineages(storage);
  const newest = lineage?.at(-1);
  if (lineage === undefined || newest === undefined) return null;
  const base = newestBase(await readBases(storage), lineage, Number.POSITIVE_INFINITY);
  if (base === null) return { newest, last: null, timeMs: 0, parent: null, base };
  const segments = await listSegments(storage, lineage, base.first);
  const last = segments.at(-1) ?? null;
  const timeMs = Math.max(base.timeMs, last?.timeMs ?? 0);
  return { newest, last, timeMs, parent: last ?? before(base.first), base };
}

/** @returns the id of the segment before this one, which may not exist */
function before({ generation, number }: SegmentId): SegmentId {
  return { generation, number: number - 1 };
}
