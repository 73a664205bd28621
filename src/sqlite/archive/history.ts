/** Finds the states that an archive can restore: bases, and the segments that lead from each to a later state. */
import { fail } from "../../error.ts";
import type { ObjectStorage } from "../../object-storage.ts";
import {
  basesOf,
  beginningMs,
  type Contents,
  hasSegments,
  type Lineage,
  readGeneration,
  type StoredBase,
} from "./contents.ts";
import {
  baseKey,
  decodeSegment,
  type Generation,
  generationKey,
  LAST_KEY,
  LIST_BLOCK,
  parseSegmentKey,
  prefixes,
  type SegmentHeader,
  type SegmentId,
  type SegmentKey,
  segmentBlock,
  segmentKey,
  segmentPrefix,
} from "./format.ts";

/** What is wrong with an archive that has commits, and no base. */
export const NO_COPY = "the archive has no complete copy of a database";

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
interface History {
  /** The newest state; `null` if there is no base. */
  readonly state: ArchivedState | null;
  /** The segment behind that state, if it is missing and was in the archive; `null` if the history goes no further. */
  readonly missing: SegmentId | null;
  /** What is damaged of each base that is newer than that of the state, by the key of the base. */
  readonly damaged: ReadonlyMap<string, string>;
}

/** A state that can be restored if its objects are not damaged. */
export interface FoundState {
  readonly state: ArchivedState;
  /** What is damaged of newer bases. */
  readonly damage: readonly string[];
  /** What should be repaired, or is not in the state. */
  readonly warnings: readonly string[];
}

/** The history of the newest lineage. */
export interface ArchiveEnd extends History {
  /** The newest generation, which may have nothing that can be restored yet. */
  readonly newest: Generation;
}

/** @returns the segments of one generation from this one on, sorted; some may be missing */
async function listGeneration(storage: ObjectStorage, from: SegmentId): Promise<StoredSegment[]> {
  const segments: StoredSegment[] = [];
  for (let { number } = from; ; number += LIST_BLOCK) {
    const block = await storage.list(segmentBlock({ ...from, number }));
    if (block.length === 0) break;
    for (const { key, bytes } of block) {
      const segment = parseSegmentKey(key);
      if (segment !== null && segment.number >= from.number) segments.push({ ...segment, bytes });
    }
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
    return object === null ? null : (await decodeSegment(key, object.body)).header;
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

function stateOf(base: StoredBase, segments: readonly StoredSegment[]): ArchivedState {
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
async function readHistory(
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

/**
 * @param damage every problem that prevents the restore
 * @param beforeMs a time before it, which is named if the archive reaches back to it; `null` if there is none
 * @throws {AppError} operator
 */
export function failUnrestorable(
  damage: readonly string[],
  beforeMs: number | null,
  contents: Contents,
): never {
  const isReached = beforeMs !== null && beforeMs >= beginningMs(contents);
  const advice = isReached
    ? `: restore a state before it with --at ${new Date(beforeMs).toISOString()}`
    : "";
  return fail("operator", `the archive is damaged: ${damage.join(", and ")}${advice}`);
}

/**
 * A generation writes its record first, and it is deleted last.
 * @returns what generations after a lineage have written until then: the first segment, and all bases
 * @throws {AppError} operator if the record of one of them is missing or damaged
 */
async function findLater(
  storage: ObjectStorage,
  { bases }: Contents,
  lineage: Lineage,
  atMs: number,
): Promise<SegmentKey[]> {
  const last = lineage.at(-1)?.number ?? 0;
  const [next] = await storage.list(prefixes.segments, 1, segmentPrefix(last) + LAST_KEY);
  const segment = next === undefined ? null : parseSegmentKey(next.key);
  const written = segment === null ? bases : [segment, ...bases];
  const later = written.filter(({ generation, timeMs }) => generation > last && timeMs <= atMs);
  for (const { generation } of later) await readGeneration(storage, generation);
  return later;
}

/** @param later what the newer lineages have written, none of which has a base */
function warningsOf(damaged: History["damaged"], later: readonly SegmentKey[]): string[] {
  const skipped = [...damaged].map(
    ([base, damage]) =>
      `${base} is damaged, an older base was used, and nothing is lost: ${damage}`,
  );
  const lost = later.map(
    ({ generation, timeMs }) =>
      `what generation ${generation} has written since ${new Date(timeMs).toISOString()} is not restored, because no base has it`,
  );
  return [...skipped, ...lost];
}

/**
 * @param at a time in the past; `null` for the newest state
 * @throws {AppError} operator if the archive is empty, does not reach back to that time, or what is needed is damaged
 */
export async function findState(
  storage: ObjectStorage,
  contents: Contents,
  at: Date | null,
): Promise<FoundState> {
  const atMs = at?.getTime() ?? Number.POSITIVE_INFINITY;
  for (const [age, lineage] of contents.lineages.entries()) {
    const later = await findLater(storage, contents, lineage, atMs);
    const { state, missing, damaged } = await readHistory(storage, contents, lineage, atMs);
    const damage = [...damaged.values()];
    const isTooOld = state === null || state.timeMs < atMs;
    const isCut = missing !== null && isTooOld;
    if (state !== null && !isCut) {
      const { base, segments } = state;
      const end = segments.findIndex(
        (segment) => !isAtOrBefore(segment, base.last) && segment.timeMs > atMs,
      );
      // Nothing after that one, whatever its time: a part of the WAL needs all parts before it.
      return {
        state: end === -1 ? state : stateOf(base, segments.slice(0, end)),
        damage,
        // What is newer than the newest lineage was begun meanwhile.
        warnings: warningsOf(damaged, age === 0 ? [] : later),
      };
    }
    if (isCut) damage.push(`${nameOf(missing)} is missing`);
    const times = basesOf(contents, lineage, atMs).map(({ timeMs }) => timeMs);
    if (damage.length > 0)
      failUnrestorable(damage, state?.timeMs ?? Math.min(...times) - 1, contents);
  }
  const beginning = beginningMs(contents);
  if (beginning === Number.POSITIVE_INFINITY) {
    const damage = contents.bases.flatMap((base) => base.damage ?? []);
    // None of a lineage: the records of their generations are missing.
    const lost = contents.lineages.length > 0 ? [] : contents.bases;
    damage.push(...lost.map(({ generation }) => `${generationKey(generation)} is missing`));
    if (damage.length > 0) failUnrestorable(damage, null, contents);
    fail("operator", (await hasSegments(storage)) ? NO_COPY : "the archive is empty");
  }
  return fail("operator", `the archive begins at ${new Date(beginning).toISOString()}`);
}
