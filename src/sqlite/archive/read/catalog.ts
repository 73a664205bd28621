/**
 * What an archive has: its records and bases, and the segments that lead from a base to later states. Every object that
 * is missing is named, and never taken for the end.
 */

import type { ObjectStorage } from "../../../domain/object-storage.ts";
import {
  type Base,
  damageOf,
  decodeBase,
  decodeGeneration,
  failDamaged,
  type Generation,
  HEAD_BYTES,
} from "../format.ts";
import {
  baseKey,
  generationKey,
  logPrefix,
  parseKey,
  parseSlotKey,
  prefixes,
  type SegmentId,
  slotKey,
} from "../keys.ts";
import type { Progress } from "../machine.ts";
import {
  type LogExtent,
  MAX_LOOKS,
  mapBounded,
  orNull,
  readHead,
  readHeartbeat,
  readLog,
  type StoredSegment,
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
  /** Those from the generation of the oldest base on, oldest first, without those that are missing or damaged. */
  readonly generations: ReadonlyMap<number, Generation>;
  /** All that are complete, and not of a void generation, oldest first. */
  readonly bases: readonly StoredBase[];
}

/** A base, and all segments since. */
export interface History {
  readonly base: StoredBase;
  /** Those before what is missing. */
  readonly segments: readonly StoredSegment[];
  /** The last segment, which may be that before the first one of the base. */
  readonly last: SegmentId;
  /** The newest generation that continues the base, perhaps through others. */
  readonly lastGeneration: number;
  /** The end of the newest log; `null` if another generation has begun anew since. */
  readonly tail: LogExtent | null;
  readonly loss: string | null;
}

/** @returns `null` if it is missing. @throws {AppError} operator if it is damaged */
export async function findGeneration(
  storage: Pick<ObjectStorage, "get">,
  number: number,
): Promise<Generation | null> {
  const body = await storage.get(generationKey(number), HEAD_BYTES);
  return body === null ? null : decodeGeneration(number, body);
}

/** @throws {AppError} operator if it is missing or damaged */
export async function readGeneration(storage: ObjectStorage, number: number): Promise<Generation> {
  return (
    (await findGeneration(storage, number)) ?? failDamaged(generationKey(number), "is missing")
  );
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

export async function isUsed(storage: Pick<ObjectStorage, "list">): Promise<boolean> {
  for (const prefix of Object.values(prefixes))
    if ((await storage.list(prefix, 1)).length > 0) return true;
  return false;
}

/** @returns what the objects with this prefix are */
async function listIds(storage: ObjectStorage, prefix: string, keyOf: (id: SegmentId) => string) {
  const ids = (await storage.list(prefix)).map(({ key }) => parseKey(key, keyOf));
  return ids.filter((id) => id !== null);
}

/** Retention deletes no record, so that numbers have no gaps. */
export async function readCatalog(storage: ObjectStorage): Promise<Catalog> {
  for (let look = 1; ; look += 1) {
    const ids = await listIds(storage, prefixes.bases, baseKey);
    const records = await listIds(storage, prefixes.generations, ({ generation }) =>
      generationKey(generation),
    );
    const recorded = Math.max(0, ...records.map(({ generation }) => generation));
    const [beyond] = await storage.list(prefixes.log, 1, logPrefix(recorded) + LAST_KEY);
    const slot = beyond === undefined ? null : parseSlotKey(beyond.key);
    const used = [...records, ...ids, ...(slot === null ? [] : [slot])];
    const newest = Math.max(0, ...used.map(({ generation }) => generation));
    // It may have begun in between.
    if (newest > recorded && look < MAX_LOOKS) continue;
    const oldest = Math.min(newest, ...ids.map(({ generation }) => generation));
    const needed = records.filter(({ generation }) => generation >= oldest);
    const read = await mapBounded(needed, ({ generation }) =>
      orNull(readGeneration(storage, generation)),
    );
    const sound = read.filter((record) => record !== null);
    const generations = new Map(sound.map((record) => [record.number, record]));
    const counted = ids.filter(({ generation }) => !isVoid({ generations }, generation));
    const bases = await mapBounded(counted, (id) => readBase(storage, id));
    return { newest, generations, bases: bases.filter((base) => base !== null) };
  }
}

type Generations = Pick<Catalog, "generations">;

/**
 * A generation that begins anew acknowledges nothing before its first base. Who has proved that it never had one continues
 * what was before it, and then it counts for nothing, also if a base arrives later.
 * @returns whether it is one of those
 */
export function isVoid({ generations }: Generations, number: number): boolean {
  return [...generations.values()].some(
    (record) =>
      record.number > number && record.parent !== null && record.parent.generation < number,
  );
}

/** @returns whether it never had a base. A server says in its heartbeat that it has one before it relies on that */
async function lacksBase(storage: ObjectStorage, number: number): Promise<boolean> {
  const beat = await readHeartbeat(storage, number);
  if (beat !== null) return beat.hasBase === false;
  // The first heartbeat comes before the first segment.
  const [first] = await storage.list(logPrefix(number), 1);
  const slot = first === undefined ? null : parseSlotKey(first.key);
  const head = slot?.number === 1 ? await readHead(storage, slot) : null;
  return first === undefined || (head !== null && head.kind !== "segment");
}

/**
 * @param after number of the generation before them
 * @returns whether all of them have begun anew, and none ever had a base
 */
export async function areVoid(
  storage: ObjectStorage,
  after: number,
  newest: number,
): Promise<boolean> {
  const numbers = Array.from({ length: newest - after }, (_, at) => after + 1 + at);
  const lacking = await mapBounded(numbers, async (number) => {
    const { parent } = await readGeneration(storage, number);
    return parent === null && (await lacksBase(storage, number));
  });
  return !lacking.includes(false);
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

/** @returns the generation and those that continue it, each the one before, as far as records say */
function chainOf({ generations }: Generations, generation: number): [number, ...number[]] {
  const next = generations.values().find(({ parent }) => parent?.generation === generation);
  return [generation, ...(next === undefined ? [] : chainOf({ generations }, next.number))];
}

/** @returns the newest generation that continues this one */
function lastOf(catalog: Generations, generation: number): number {
  return chainOf(catalog, generation).at(-1) ?? generation;
}

/** @returns the first generation after this one that may continue it, and whose record is missing or damaged */
function findBreak({ newest, generations, bases }: Catalog, last: number): number | null {
  for (let number = last + 1; number <= newest; number += 1) {
    if (!generations.has(number)) return number;
    // What follows does not continue what was before.
    if (bases.some(({ generation }) => generation === number)) break;
  }
  return null;
}

/** @param from a segment that retention has not deleted, nor any after it */
function readFrom(storage: ObjectStorage, catalog: Catalog, from: SegmentId): Promise<LogExtent> {
  const own = catalog.bases.filter(({ generation }) => generation === from.generation);
  const confirmed = Math.max(0, ...own.map(({ last }) => last.number));
  const end = catalog.generations.get(from.generation + 1)?.previousEnd ?? null;
  return readLog(storage, from, end, confirmed);
}

export async function readHistory(
  storage: ObjectStorage,
  catalog: Catalog,
  base: StoredBase,
): Promise<History> {
  const [, ...later] = chainOf(catalog, base.generation);
  const lastGeneration = later.at(-1) ?? base.generation;
  const before = { ...base.first, number: base.first.number - 1 };
  if (base.damage !== null)
    return { base, segments: [], last: before, lastGeneration, tail: null, loss: base.damage };
  const beginnings = [base.first, ...later.map((number) => ({ generation: number, number: 1 }))];
  const logs = await mapBounded(beginnings, (from) => readFrom(storage, catalog, from));
  const cut = logs.findIndex(({ loss }) => loss !== null);
  const segments = logs.slice(0, cut === -1 ? logs.length : cut + 1).flatMap((log) => log.segments);
  const { generation, number } = segments.at(-1) ?? before;
  const missing = findBreak(catalog, lastGeneration);
  const broken = missing === null ? null : `${generationKey(missing)} is missing or damaged`;
  return {
    base,
    segments,
    last: { generation, number },
    lastGeneration,
    tail: lastGeneration === catalog.newest ? (logs.at(-1) ?? null) : null,
    loss: logs[cut]?.loss ?? broken,
  };
}

/**
 * @returns the header of the last segment, `null` if there is none, or it is damaged; and what is missing or damaged at
 * the end, `null` if nothing is
 */
export async function readLastHeader(storage: ObjectStorage, { segments, loss }: History) {
  const last = segments.at(-1);
  const head = last === undefined ? null : await readHead(storage, last);
  const header = head?.kind === "segment" ? head : null;
  const isDamaged = last !== undefined && header === null;
  return { header, damage: loss ?? (isDamaged ? `${slotKey(last)} is damaged` : null) };
}

/**
 * @param history the end of which something follows that is missing or damaged
 * @returns the progress of the last segment that can be read, wherever it is; `null` if none says it
 */
export async function readNewestProgress(
  storage: ObjectStorage,
  catalog: Catalog,
  { base, tail }: Pick<History, "tail"> & { readonly base: Pick<SegmentId, "generation"> },
): Promise<Progress | null> {
  const { newest, generations } = catalog;
  for (let number = newest; number >= base.generation; number -= 1) {
    if (isVoid(catalog, number)) continue;
    const sealed = number === newest && tail?.isSealed ? tail.sealFrom.number - 1 : null;
    const end = generations.get(number + 1)?.previousEnd ?? sealed ?? Number.POSITIVE_INFINITY;
    const objects = await storage.list(logPrefix(number));
    for (const { key } of objects.reverse()) {
      const slot = parseSlotKey(key);
      const head = slot === null || slot.number > end ? null : await readHead(storage, slot);
      if (head?.kind === "segment" && head.progress !== null) return head.progress;
    }
  }
  return null;
}

/** @returns whether it has all that completes the base */
export function isUsable({ base, last, loss }: History): boolean {
  return base.damage === null && (loss === null || isAtOrBefore(base.last, last));
}

/**
 * Looks for a base that can be used. An older one leads to the same states, unless a generation has begun anew since.
 * @param candidates newest first
 * @returns the history of each that was tried. Only the last one can be usable
 */
export async function tryBases(
  storage: ObjectStorage,
  catalog: Catalog,
  candidates: readonly StoredBase[],
): Promise<History[]> {
  const tried: History[] = [];
  for (const base of candidates) {
    const [newest] = tried;
    if (newest !== undefined && newest.lastGeneration !== lastOf(catalog, base.generation)) break;
    const history = await readHistory(storage, catalog, base);
    tried.push(history);
    if (isUsable(history)) break;
  }
  return tried;
}

/** @returns the history of the newest base that can be used; otherwise that of one that is sound */
export async function readNewestHistory(
  storage: ObjectStorage,
  catalog: Catalog,
): Promise<History | null> {
  const tried = await tryBases(storage, catalog, catalog.bases.toReversed());
  return tried.findLast(({ base }) => base.damage === null) ?? null;
}

/**
 * @returns the newest state that can be restored, `null` if there is no base; and how the newest log ends, which the state
 * may not reach, `null` if the archive is empty
 */
export async function readEnd(storage: ObjectStorage, catalog: Catalog) {
  const { newest } = catalog;
  const history = await readNewestHistory(storage, catalog);
  const tail = history?.tail ?? null;
  if (newest === 0 || tail !== null) return { history, tail };
  // Without a sound base in this generation, retention has deleted nothing of it, unless one is damaged.
  return { history, tail: await readFrom(storage, catalog, { generation: newest, number: 1 }) };
}

/** The newest base that leads to the end of a log, `null` if there is none; and what is missing or damaged then. */
export type BaseOfEnd = { readonly newest: Base | null; readonly damage: string | null };

/** @param last the last segment before that end */
export async function findBaseOf(storage: ObjectStorage, last: SegmentId): Promise<BaseOfEnd> {
  const history = await readNewestHistory(storage, await readCatalog(storage));
  if (history === null) return { newest: null, damage: NO_BASE };
  const { generation, number } = history.last;
  const next = slotKey({ generation, number: number + 1 });
  const { damage } = await readLastHeader(storage, history);
  const problem = damage ?? (isAtOrBefore(last, history.last) ? null : `${next} is missing`);
  return { newest: problem === null ? history.base : null, damage: problem };
}

/** Why an archive with objects is neither restored nor begun. */
export const NO_BASE = "it has objects, but no complete base";
