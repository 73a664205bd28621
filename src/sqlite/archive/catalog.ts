/**
 * What an archive has: its records and bases, and the segments that lead from a base to later states. Every object that
 * is missing is named, and never taken for the end.
 */
import { fail } from "../../base/error.ts";
import type { ObjectStorage } from "../../domain/object-storage.ts";
import {
  type Base,
  baseKey,
  damageOf,
  decodeBase,
  decodeGeneration,
  failDamaged,
  type Generation,
  generationKey,
  HEAD_BYTES,
  logPrefix,
  parseBaseKey,
  parseGenerationKey,
  parseSlotKey,
  prefixes,
  type SegmentId,
} from "./format.ts";
import {
  MAX_LOOKS,
  mapBounded,
  nameOf,
  readSealed,
  readTail,
  type SealedPart,
  type StoredSegment,
  type Tail,
} from "./log-reader.ts";

/** Greater than what follows a prefix in any key. */
const LAST_KEY = "~";

export interface StoredBase extends Base {
  /** What of it is damaged; `null` if nothing is known to be. */
  readonly damage: string | null;
}

export interface Catalog {
  /** Number of the newest generation; 0 if no server has written to the archive. */
  readonly newest: number;
  /** Those from the generation of the oldest base on, by number, without those that are missing or damaged. */
  readonly generations: ReadonlyMap<number, Generation>;
  /** All that are complete, oldest first. */
  readonly bases: readonly StoredBase[];
}

/** A base, and all segments since. */
export interface History {
  readonly base: StoredBase;
  /** Those before what is missing. */
  readonly segments: readonly StoredSegment[];
  /** The last segment, which may be that before the first one of the base. */
  readonly last: SegmentId;
  /** The newest generation that continues the base. */
  readonly lastGeneration: number;
  /** The end of the newest log; `null` if another generation has begun anew since. */
  readonly tail: Tail | null;
  readonly loss: string | null;
}

/** @returns `null` if it is damaged, and the reason is not needed */
async function orNull<Result>(work: Promise<Result>): Promise<Result | null> {
  try {
    return await work;
  } catch (error) {
    if (damageOf(error) === null) throw error;
    return null;
  }
}

/** @throws {AppError} operator if it is missing or damaged */
export async function readGeneration(storage: ObjectStorage, number: number): Promise<Generation> {
  const key = generationKey(number);
  const body = await storage.get(key, HEAD_BYTES);
  return decodeGeneration(number, body ?? failDamaged(key, "is missing"));
}

/** @returns `null` if it was deleted since it was listed */
async function readBase(storage: ObjectStorage, id: SegmentId): Promise<StoredBase | null> {
  try {
    const body = await storage.get(baseKey(id));
    return body === null ? null : { ...decodeBase(id, body), damage: null };
  } catch (error) {
    const damage = damageOf(error);
    if (damage === null) throw error;
    // All that is known of it. Its number is the time at which it was begun, in seconds.
    const beginning = { generation: id.generation, number: 0 };
    const timeMs = id.number * 1000;
    const unknown = { chunks: [], storedBytes: 0, progress: null };
    return { ...id, first: beginning, last: beginning, timeMs, ...unknown, damage };
  }
}

/** @returns the prefixes under which the archive has objects */
export async function usedPrefixes(storage: Pick<ObjectStorage, "list">): Promise<string[]> {
  const used: string[] = [];
  for (const prefix of Object.values(prefixes))
    if ((await storage.list(prefix, 1)).length > 0) used.push(prefix);
  return used;
}

/** @returns the number of a generation that has a log or a base, and is newer than this one; 0 if there is none */
async function findNewer(storage: ObjectStorage, newest: number, bases: readonly SegmentId[]) {
  const [beyond] = await storage.list(prefixes.log, 1, logPrefix(newest) + LAST_KEY);
  const slot = beyond === undefined ? null : parseSlotKey(beyond.key);
  const used = [...bases, slot].filter((id) => id !== null);
  return used.find(({ generation }) => generation > newest)?.generation ?? 0;
}

/** Retention deletes no record, so that numbers have no gaps. */
export async function readCatalog(storage: ObjectStorage): Promise<Catalog> {
  for (let look = 1; ; look += 1) {
    const ids = (await storage.list(prefixes.bases))
      .map(({ key }) => parseBaseKey(key))
      .filter((id) => id !== null);
    const numbers = (await storage.list(prefixes.generations))
      .map(({ key }) => parseGenerationKey(key))
      .filter((number) => number !== null);
    const recorded = Math.max(0, ...numbers);
    const newer = await findNewer(storage, recorded, ids);
    // It may have begun in between.
    if (newer > 0 && look < MAX_LOOKS) continue;
    const newest = Math.max(recorded, newer);
    const oldest = Math.min(newest, ...ids.map(({ generation }) => generation));
    const needed = numbers.filter((number) => number >= oldest);
    const records = await mapBounded(needed, (number) => orNull(readGeneration(storage, number)));
    const sound = records.filter((record) => record !== null);
    const bases = await mapBounded(ids, (id) => readBase(storage, id));
    return {
      newest,
      generations: new Map(sound.map((record) => [record.number, record])),
      bases: bases.filter((base) => base !== null),
    };
  }
}

/**
 * @returns the newest record; `null` if the archive is empty
 * @throws {AppError} operator if it is missing or damaged, so that nobody knows whose the archive is
 */
export function requireNewest({ newest, generations }: Catalog): Generation | null {
  if (newest === 0) return null;
  return generations.get(newest) ?? failDamaged(generationKey(newest), "is missing or damaged");
}

/** @returns the catalog, one base of which was found to be damaged */
export function withDamage(catalog: Catalog, base: StoredBase, damage: string): Catalog {
  const mark = (each: StoredBase) => (baseKey(each) === baseKey(base) ? { ...each, damage } : each);
  return { ...catalog, bases: catalog.bases.map(mark) };
}

/** @returns whether the segment is at or before the other one; bases are compared in the same way */
export function isAtOrBefore(segment: SegmentId, other: SegmentId): boolean {
  if (segment.generation !== other.generation) return segment.generation < other.generation;
  return segment.number <= other.number;
}

export function isSameSegment(one: SegmentId | null, other: SegmentId | null): boolean {
  return one?.generation === other?.generation && one?.number === other?.number;
}

/** @returns since when a state can be restored; infinite if none can */
export function beginningMs({ bases }: Catalog): number {
  return Math.min(...bases.filter(({ damage }) => damage === null).map(({ timeMs }) => timeMs));
}

/** @returns whether the later generation continues the earlier one, as far as records say */
function isContinued({ generations }: Catalog, earlier: number, later: number): boolean {
  for (let number = earlier + 1; number <= later; number += 1)
    if (generations.get(number)?.continues === false) return false;
  return true;
}

/** @returns the logs that continue a base, by their records. The end of the last one may be unknown */
function partsOf({ newest, generations }: Catalog, { first }: Base) {
  const sealed: SealedPart[] = [];
  for (let from = first; ; from = { generation: from.generation + 1, number: 1 }) {
    if (from.generation === newest) return { sealed, open: from, loss: null };
    const next = generations.get(from.generation + 1);
    const loss = `${generationKey(from.generation + 1)} is missing or damaged`;
    if (next === undefined) return { sealed, open: from, loss };
    sealed.push({ from, end: next.previousEnd });
    if (!next.continues) return { sealed, open: null, loss: null };
  }
}

export async function readHistory(
  storage: ObjectStorage,
  catalog: Catalog,
  base: StoredBase,
): Promise<History> {
  const { sealed, open, loss: broken } = partsOf(catalog, base);
  const own = catalog.bases.filter(({ generation }) => generation === open?.generation);
  const confirmed = Math.max(0, ...own.map(({ last }) => last.number));
  const parts: { segments: readonly StoredSegment[]; loss: string | null }[] = await mapBounded(
    sealed,
    (part) => readSealed(storage, part),
  );
  const tail = open === null ? null : await readTail(storage, open, confirmed);
  if (tail !== null) parts.push(tail);
  const cut = parts.findIndex(({ loss }) => loss !== null);
  const whole = cut === -1 ? parts : parts.slice(0, cut + 1);
  const segments = whole.flatMap((part) => part.segments);
  const before = { ...base.first, number: base.first.number - 1 };
  const { generation, number } = segments.at(-1) ?? before;
  const last = { generation, number };
  // What completes the base may be behind the end.
  const isIncomplete = cut === -1 && !isAtOrBefore(base.last, last);
  const rest = isIncomplete ? `${nameOf({ ...last, number: number + 1 })} is missing` : broken;
  return {
    base,
    segments,
    last,
    lastGeneration: open?.generation ?? sealed.at(-1)?.from.generation ?? base.generation,
    tail: open?.generation === catalog.newest ? tail : null,
    loss: parts[cut]?.loss ?? rest,
  };
}

/** The newest state that can be restored, and how the newest log ends, which it may not reach. */
export interface ArchiveEnd {
  /** `null` if there is no base. */
  readonly history: History | null;
  /** `null` if the archive is empty. */
  readonly tail: Tail | null;
}

/** A base that does not lead to a state. */
interface UnusableBase {
  readonly base: StoredBase;
  /** `null` if the base itself is damaged. */
  readonly history: History | null;
}

/**
 * Finds the newest base that can be used. An older one leads to the same states, unless a generation has begun anew since.
 * @param candidates newest first
 */
export async function readUsable(
  storage: ObjectStorage,
  catalog: Catalog,
  candidates: readonly StoredBase[],
): Promise<{ history: History | null; unusable: readonly UnusableBase[] }> {
  const unusable: UnusableBase[] = [];
  for (const base of candidates) {
    const newer = unusable.at(-1)?.base ?? base;
    if (!isContinued(catalog, base.generation, newer.generation)) break;
    const history = base.damage === null ? await readHistory(storage, catalog, base) : null;
    const isUsable =
      history !== null && (history.loss === null || isAtOrBefore(base.last, history.last));
    if (isUsable) return { history, unusable };
    unusable.push({ base, history });
  }
  return { history: null, unusable };
}

/** @returns the history of the newest base that can be used; that of the newest sound one if none can */
export async function readNewestHistory(
  storage: ObjectStorage,
  catalog: Catalog,
): Promise<History | null> {
  const { history, unusable } = await readUsable(storage, catalog, catalog.bases.toReversed());
  return history ?? unusable.find((each) => each.history !== null)?.history ?? null;
}

export async function readEnd(storage: ObjectStorage, catalog: Catalog): Promise<ArchiveEnd> {
  const { newest } = catalog;
  const history = await readNewestHistory(storage, catalog);
  const tail = history?.tail ?? null;
  if (newest === 0 || tail !== null) return { history, tail };
  // Without a sound base in this generation, retention has deleted nothing of it, unless one is damaged.
  const from = { generation: newest, number: 1 };
  return { history, tail: await readTail(storage, from, 0) };
}

/** @throws {AppError} operator */
export function failWithoutBase(used: readonly string[], advice = ""): never {
  const what = `it has objects in ${used.join(", ")}, but no complete base`;
  return fail("operator", advice === "" ? what : `${what}: ${advice}`);
}
