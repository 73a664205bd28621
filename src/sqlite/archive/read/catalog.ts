/**
 * What an archive has: records, logs and bases, and the states to which they lead. What is missing is named, and never taken
 * for the end: a log ends where it is sealed, or, if it is not sealed, after what its server has confirmed.
 */
import { fail } from "../../../base/error.ts";
import type { ArchivedRange } from "../../../domain/archive.ts";
import { mapBounded, type ObjectStorage } from "../../../domain/object-storage.ts";
import type { Base, Generation } from "../format.ts";
import * as format from "../format.ts";
import type { ObjectId } from "../keys.ts";
import * as keys from "../keys.ts";
import type { Progress } from "../machine.ts";

/** What seems to be missing is looked for so often: a server may write meanwhile. */
const MAX_LOOKS = 3;
/** Slots that may follow the first seal: of a server that did not know of it, and the seals of promotions. */
const MAX_AFTER_SEAL = 2 * format.MAX_SENDING;

interface StoredSegment extends ObjectId {
  readonly bytes: number;
}

export interface LogExtent {
  /** Without those after the first one that is missing. */
  readonly segments: readonly StoredSegment[];
  readonly isSealed: boolean;
  /** The first slot that may be sealed: segments before it are known to have been stored. */
  readonly sealFrom: ObjectId;
  readonly loss: string | null;
}

/** @returns `null` if it is damaged, and the reason is not needed */
export async function orNull<Result>(work: Promise<Result>): Promise<Result | null> {
  try {
    return await work;
  } catch (error) {
    if (format.damageOf(error) === null) throw error;
    return null;
  }
}

/** @returns the slots of a log, perhaps beyond its end, sorted. What follows an empty block shows that the block is missing */
async function listSlots(storage: ObjectStorage, from: ObjectId, end: number | null) {
  const slots: StoredSegment[] = [];
  const firstOfBlock = from.number - (from.number % keys.SLOTS_PER_BLOCK);
  for (let number = firstOfBlock; end === null || number <= end; number += keys.SLOTS_PER_BLOCK) {
    const prefix = keys.blockPrefix({ ...from, number });
    const block = await storage.list(prefix);
    const isEmpty = block.length === 0;
    if (isEmpty) block.push(...(await storage.list(keys.logPrefix(from.generation), 1, prefix)));
    for (const { key, bytes } of block) {
      const slot = keys.parseKey(key);
      if (slot !== null && slot.number >= from.number) slots.push({ ...slot, bytes });
    }
    if (isEmpty) break;
  }
  // Not in the order of the list, which a storage may get wrong.
  return slots.sort((a, b) => a.number - b.number);
}

/** @returns what is in the slot, without the contents of a segment; `null` if it is empty or damaged */
export async function readHead(storage: ObjectStorage, id: ObjectId) {
  const body = await storage.get(keys.slotKey(id), format.HEAD_BYTES);
  return body && orNull(Promise.try(format.decodeHead, id, body));
}

/** @returns whether a standby need not wait. Segments that arrived late can be between the end and that seal */
export async function isPromoted(storage: ObjectStorage, end: ObjectId): Promise<boolean> {
  const read = (_: unknown, at: number) => readHead(storage, keys.shift(end, at));
  const heads = await Promise.all(Array.from({ length: format.MAX_SENDING + 2 }, read));
  return heads.some((head) => head !== null && head.kind !== "segment" && head.promoted === true);
}

/** @returns `null` if there is none. @throws {AppError} operator if it is damaged */
export async function readHeartbeat(storage: ObjectStorage, generation: number) {
  const body = await storage.get(keys.heartbeatKey(generation), format.HEAD_BYTES);
  return body === null ? null : format.decodeHeartbeat(generation, body);
}

/**
 * @param from a segment that retention has not deleted, nor any after it
 * @param end number of the last segment; `null` unless a record says where the log was sealed
 * @param confirmed number of a segment that was stored, with all before it; 0 if none is known
 */
export async function readLog(
  storage: ObjectStorage,
  from: ObjectId,
  end: number | null = null,
  confirmed = 0,
): Promise<LogExtent> {
  const { generation } = from;
  for (let look = 1; ; look += 1) {
    // First, because it confirms what must be in the list.
    const beat = end === null ? await orNull(readHeartbeat(storage, generation)) : null;
    const slots = await listSlots(storage, from, end);
    const filled = slots.filter(({ number }, index) => number === from.number + index);
    const empty = from.number + filled.length;
    // A seal is one of them.
    const newest = end === null ? slots.slice(-MAX_AFTER_SEAL) : [];
    const read = await mapBounded(newest, (slot) => readHead(storage, slot));
    const heads = read.filter((head) => head !== null);
    // A fence is no end while a slot before it is empty. Otherwise, what is missing before a seal was confirmed.
    const seal = heads.find(
      ({ kind, number, confirmed }) => kind !== "segment" && (number < empty || confirmed >= empty),
    );
    const last = end ?? (seal === undefined ? null : seal.number - 1);
    const marks =
      last === null ? [beat?.confirmed ?? 0, ...heads.map((head) => head.confirmed)] : [last];
    const stored = Math.max(confirmed, ...marks);
    const segments = filled.filter(({ number }) => number <= (last ?? number));
    const number = from.number + segments.length;
    // A server writes its first heartbeat before its first segment.
    const isSilent = last === null && beat === null && slots.length > 0;
    const silence = isSilent ? `${keys.heartbeatKey(generation)} is missing or damaged` : null;
    const loss =
      number <= stored ? `segment ${number} of generation ${generation} is missing` : silence;
    if (loss !== null && look < MAX_LOOKS) continue;
    const next = last === null ? Math.max(number, stored + 1) : last + 1;
    return { segments, isSealed: last !== null, sealFrom: { generation, number: next }, loss };
  }
}

/** Greater than what follows a prefix in any key. */
const LAST_KEY = "~";

interface StoredBase extends Base {
  /** What of it is damaged; `null` if nothing is known to be. */
  readonly damage: string | null;
}

export interface Catalog {
  readonly storage: ObjectStorage;
  /** Number of the newest generation; 0 if no server has written to the archive. */
  readonly newest: number;
  /** Those from the generation of the oldest base on, oldest first, without those that are missing or damaged. */
  readonly generations: ReadonlyMap<number, Generation>;
  /** All that are complete, and not of a void generation, oldest first. */
  readonly bases: readonly StoredBase[];
}

/** A base, and all segments since. */
export interface History {
  readonly catalog: Catalog;
  readonly base: StoredBase;
  readonly segments: readonly StoredSegment[];
  /** The last segment, which may be that before the first one of the base. */
  readonly last: ObjectId;
  /** The newest generation that continues the base, perhaps through others. */
  readonly lastGeneration: number;
  /** The end of the newest log; `null` if another generation has begun anew since. */
  readonly tail: LogExtent | null;
  readonly loss: string | null;
}

/** @returns `null` if it is missing. @throws {AppError} operator if it is damaged */
export async function findGeneration(storage: ObjectStorage, number: number) {
  const body = await storage.get(keys.generationKey(number), format.HEAD_BYTES);
  return body === null ? null : format.decodeGeneration(number, body);
}

/** @throws {AppError} operator if it is missing or damaged */
export async function readGeneration(storage: ObjectStorage, number: number): Promise<Generation> {
  const found = await findGeneration(storage, number);
  return found ?? format.failDamaged(keys.generationKey(number), "is missing");
}

async function readBase(storage: ObjectStorage, id: ObjectId): Promise<StoredBase | null> {
  try {
    const body = await storage.get(keys.baseKey(id));
    return body === null ? null : { ...format.decodeBase(id, body), damage: null };
  } catch (error) {
    const damage = format.damageOf(error);
    if (damage === null) throw error;
    // All that is known of it. Its number is the time at which it was begun, in seconds.
    const beginning = { generation: id.generation, number: 0 };
    const timeMs = id.number * 1000;
    const unknown = { chunks: [], storedBytes: 0, progress: null };
    return { ...id, first: beginning, last: beginning, timeMs, ...unknown, damage };
  }
}

export async function isUsed(storage: ObjectStorage): Promise<boolean> {
  for (const prefix of Object.values(keys.prefixes))
    if ((await storage.list(prefix, 1)).length > 0) return true;
  return false;
}

async function listIds(storage: ObjectStorage, prefix: string, keyOf: (id: ObjectId) => string) {
  const ids = (await storage.list(prefix)).map(({ key }) => keys.parseKey(key, keyOf));
  return ids.filter((id) => id !== null);
}

/** Retention deletes no record, so that numbers have no gaps. */
export async function readCatalog(storage: ObjectStorage): Promise<Catalog> {
  for (let look = 1; ; look += 1) {
    const ids = await listIds(storage, keys.prefixes.bases, keys.baseKey);
    const records = await listIds(storage, keys.prefixes.generations, ({ generation }) =>
      keys.generationKey(generation),
    );
    const recorded = Math.max(0, ...records.map(({ generation }) => generation));
    let newest = Math.max(recorded, ...ids.map(({ generation }) => generation));
    // Records can be missing, also several.
    for (let isLast = false; !isLast; ) {
      const [beyond] = await storage.list(keys.prefixes.log, 1, keys.logPrefix(newest) + LAST_KEY);
      const slot = beyond === undefined ? null : keys.parseKey(beyond.key);
      isLast = slot === null;
      newest = slot?.generation ?? newest;
    }
    // It may have begun in between.
    if (newest > recorded && look < MAX_LOOKS) continue;
    const oldest = Math.min(newest, ...ids.map(({ generation }) => generation));
    const needed = records.filter(({ generation }) => generation >= oldest);
    const read = await mapBounded(needed, ({ generation }) =>
      orNull(readGeneration(storage, generation)),
    );
    const sound = read.filter((record) => record !== null);
    const generations = new Map(sound.map((record) => [record.number, record]));
    const counted = ids.filter(({ generation }) => !isVoid(generations, generation));
    const bases = await mapBounded(counted, (id) => readBase(storage, id));
    return { storage, newest, generations, bases: bases.filter((base) => base !== null) };
  }
}

/**
 * A generation that begins anew acknowledges nothing before its first base. A server that has proved that it never had one
 * continues what was before it, and then it counts for nothing, also if a base arrives later.
 * @returns whether it is one of those
 */
function isVoid(generations: Catalog["generations"], number: number): boolean {
  const isAfter = (record: Generation) =>
    record.number > number && record.parent !== null && record.parent.generation < number;
  return generations.values().some(isAfter);
}

/** @returns whether it never had a base. A server says in its heartbeat that it has one before it relies on that */
async function lacksBase(storage: ObjectStorage, number: number): Promise<boolean> {
  const beat = await readHeartbeat(storage, number);
  if (beat !== null) return !beat.hasBase;
  // The first heartbeat comes before the first segment.
  const { segments, loss } = await readLog(storage, { generation: number, number: 1 });
  return segments.length === 0 && loss === null;
}

/** @returns whether all generations after that number have begun anew, and none of them ever had a base */
export async function areVoid(storage: ObjectStorage, after: number, newest: number) {
  const numbers = Array.from({ length: newest - after }, (_, at) => after + 1 + at);
  const lacking = await mapBounded(numbers, async (number) => {
    const { parent } = await readGeneration(storage, number);
    return parent === null && (await lacksBase(storage, number));
  });
  return !lacking.includes(false);
}

/** @returns `null` if the archive is empty. @throws {AppError} operator if its record is lost, which says whose it is */
export function requireNewest({ newest, generations }: Catalog): Generation | null {
  if (newest === 0) return null;
  return (
    generations.get(newest) ??
    format.failDamaged(keys.generationKey(newest), "is missing or damaged")
  );
}

/** @returns the generation and those that continue it, each the one before, as far as records say */
function chainOf(generations: Catalog["generations"], generation: number): [number, ...number[]] {
  const next = generations.values().find(({ parent }) => parent?.generation === generation);
  return [generation, ...(next === undefined ? [] : chainOf(generations, next.number))];
}

function lossOfRecord({ generations }: Catalog, generation: number): string | null {
  return generations.has(generation)
    ? null
    : `${keys.generationKey(generation)} is missing or damaged`;
}

/** @returns the first record after this generation that may continue it, and is missing or damaged */
function lossAfter(catalog: Catalog, generation: number): string | null {
  for (let number = generation + 1; number <= catalog.newest; number += 1) {
    const lost = lossOfRecord(catalog, number);
    // What follows a base does not continue what was before.
    if (lost !== null || catalog.bases.some((base) => base.generation === number)) return lost;
  }
  return null;
}

function readFrom({ storage, bases, generations }: Catalog, from: ObjectId): Promise<LogExtent> {
  const own = bases.filter(({ generation }) => generation === from.generation);
  const confirmed = Math.max(0, ...own.map(({ last }) => last.number));
  const end = generations.get(from.generation + 1)?.previousEnd ?? null;
  return readLog(storage, from, end, confirmed);
}

async function readHistory(catalog: Catalog, base: StoredBase): Promise<History> {
  const [, ...later] = chainOf(catalog.generations, base.generation);
  const lastGeneration = later.at(-1) ?? base.generation;
  const known = { catalog, base, lastGeneration };
  const before = keys.shift(base.first, -1);
  if (base.damage !== null)
    return { ...known, segments: [], last: before, tail: null, loss: base.damage };
  const beginnings = [base.first, ...later.map((number) => ({ generation: number, number: 1 }))];
  const logs = await mapBounded(beginnings, (from) => readFrom(catalog, from));
  const cut = logs.findIndex(({ loss }) => loss !== null);
  const segments = logs.slice(0, cut === -1 ? logs.length : cut + 1).flatMap((log) => log.segments);
  return {
    ...known,
    segments,
    last: keys.shift(segments.at(-1) ?? before, 0),
    tail: lastGeneration === catalog.newest ? (logs.at(-1) ?? null) : null,
    loss: logs[cut]?.loss ?? lossAfter(catalog, lastGeneration),
  };
}

/** @returns the header of the last segment, `null` if none can be read; and what is missing or damaged at the end */
export async function readLastHeader({ catalog, segments, loss }: History) {
  const last = segments.at(-1);
  const head = last === undefined ? null : await readHead(catalog.storage, last);
  const header = head?.kind === "segment" ? head : null;
  const isDamaged = last !== undefined && header === null;
  return { header, damage: loss ?? (isDamaged ? `${keys.slotKey(last)} is damaged` : null) };
}

/** @returns that of the last segment that can be read, also after what is missing; `null` if none says it */
export async function readNewestProgress(
  catalog: Catalog,
  { base, tail }: Pick<History, "tail"> & { readonly base: Pick<ObjectId, "generation"> },
): Promise<Progress | null> {
  const { storage, newest, generations } = catalog;
  for (let number = newest; number >= base.generation; number -= 1) {
    if (isVoid(generations, number)) continue;
    const sealed = number === newest && tail?.isSealed ? tail.sealFrom.number - 1 : null;
    const end = generations.get(number + 1)?.previousEnd ?? sealed ?? Number.POSITIVE_INFINITY;
    const slots = await listIds(storage, keys.logPrefix(number), keys.slotKey);
    for (const slot of slots.reverse()) {
      const head = slot.number > end ? null : await readHead(storage, slot);
      if (head?.kind === "segment" && head.progress !== null) return head.progress;
    }
  }
  return null;
}

function isUsable({ base, last, loss }: History): boolean {
  return base.damage === null && (loss === null || keys.isAtOrBefore(base.last, last));
}

/** Newest first: an older base leads to the same states. @returns those that were tried; only the last can be usable */
async function tryBases(catalog: Catalog, candidates: readonly StoredBase[]): Promise<History[]> {
  const tried: History[] = [];
  for (const base of candidates) {
    const [newest] = tried;
    const last = chainOf(catalog.generations, base.generation).at(-1);
    if (newest !== undefined && newest.lastGeneration !== last) break;
    const history = await readHistory(catalog, base);
    tried.push(history);
    if (isUsable(history)) break;
  }
  return tried;
}

/** @returns the history of the newest base that can be used; otherwise that of one that is sound */
export async function readNewestHistory(catalog: Catalog): Promise<History | null> {
  const tried = await tryBases(catalog, catalog.bases.toReversed());
  return tried.findLast(({ base }) => base.damage === null) ?? null;
}

/**
 * @returns the newest generation; the newest state, `null` without a base; and the end of the newest log, which that may not
 * reach. All are `null` if the archive is empty
 */
export async function readEnd(storage: ObjectStorage) {
  const catalog = await readCatalog(storage);
  const newest = requireNewest(catalog);
  const history = await readNewestHistory(catalog);
  const end = { catalog, newest, history, tail: history?.tail ?? null };
  if (newest === null || end.tail !== null) return end;
  // Without a sound base in this generation, retention has deleted nothing of it, unless one is damaged.
  return { ...end, tail: await readFrom(catalog, { generation: newest.number, number: 1 }) };
}

/** @param last the end of a log. @returns the newest base that leads to it, and what is missing or damaged then */
export async function findBaseOf(storage: ObjectStorage, last: ObjectId) {
  const history = await readNewestHistory(await readCatalog(storage));
  if (history === null) return { newest: null, damage: NO_BASE };
  const next = keys.slotKey(keys.shift(history.last, 1));
  const lost = keys.isAtOrBefore(last, history.last) ? null : `${next} is missing`;
  const damage = (await readLastHeader(history)).damage ?? lost;
  return { newest: damage === null ? history.base : null, damage };
}

/** Why an archive with objects is neither restored nor begun. */
export const NO_BASE = "it has objects, but no complete base";

/**
 * What was written while the clock was ahead has a later time than what follows it.
 * @returns the last segment of the base, or a later one that was written until this time, from which on times ascend
 */
async function findNeeded({ catalog, base, segments }: History, atMs: number) {
  const { storage } = catalog;
  for (let end = Number.isFinite(atMs) ? segments.length - 1 : -1; end >= 0; ) {
    const last = await readHead(storage, segments[end] ?? base.last);
    const length = last?.kind === "segment" ? last.number - (last.ascendsFrom ?? 1) : 0;
    const first = await readHead(storage, segments[Math.max(0, end - length)] ?? base.last);
    if (first !== null && first.timeMs <= atMs)
      return keys.isAtOrBefore(first, base.last) ? base.last : first;
    end -= length + 1;
  }
  return base.last;
}

export type FoundState = Awaited<ReturnType<typeof findState>>;

/** @param beforeMs a time before the problems: it is named if the archive reaches back to it. @throws {AppError} operator */
export function failUnrestorable(
  problems: readonly string[],
  beforeMs: number,
  { bases }: Catalog,
): never {
  const isReached = bases.some(({ damage, timeMs }) => damage === null && timeMs <= beforeMs);
  const advice = isReached
    ? `: restore a state before it with --at ${new Date(beforeMs).toISOString()}`
    : "";
  return fail("operator", `the archive is damaged: ${problems.join(", and ")}${advice}`);
}

async function endMs({ catalog, base, last }: History): Promise<number> {
  const head = await readHead(catalog.storage, last);
  return keys.isAtOrBefore(last, base.last) ? base.timeMs : (head?.timeMs ?? base.timeMs);
}

/** @returns records that are missing, and what generations after the history have written until then, and no base has */
async function warningsOfLater(history: History, atMs: number): Promise<string[]> {
  const { catalog, base, lastGeneration, loss } = history;
  const { storage, newest } = catalog;
  // Nothing of it is needed but the base and the log.
  const lost = lossOfRecord(catalog, base.generation);
  const warnings = lost === null ? [] : [lost];
  // A loss says that the archive has more.
  for (let number = lastGeneration + 1; loss === null && number <= newest; number += 1) {
    if (isVoid(catalog.generations, number)) continue;
    if ((await storage.list(keys.logPrefix(number), 1)).length === 0) continue;
    const head = await readHead(storage, { generation: number, number: 1 });
    if (head !== null && (head.kind !== "segment" || head.timeMs > atMs)) continue;
    const since = head === null ? "" : ` since ${new Date(head.timeMs).toISOString()}`;
    warnings.push(
      `what generation ${number} has written${since} is not restored, because no base has it`,
    );
  }
  return warnings;
}

async function failWithoutState({ storage, bases }: Catalog): Promise<never> {
  const [oldest] = bases;
  if (oldest !== undefined)
    fail("operator", `the archive begins at ${new Date(oldest.timeMs).toISOString()}`);
  return fail("operator", (await isUsed(storage)) ? NO_BASE : "the archive is empty");
}

/** @param atMs infinite for the newest state. @throws {AppError} operator if what is needed is not there */
export async function findState(catalog: Catalog, atMs: number) {
  const candidates = catalog.bases.filter(({ timeMs }) => timeMs <= atMs).reverse();
  const tried = await tryBases(catalog, candidates);
  const history = tried.at(-1) ?? (await failWithoutState(catalog));
  if (history.loss !== null) {
    const untilMs = isUsable(history) ? await endMs(history) : history.base.timeMs - 1;
    const losses = new Set(tried.flatMap(({ loss }) => loss ?? []));
    if (untilMs < atMs) failUnrestorable([...losses], untilMs, catalog);
  }
  const damaged = tried.flatMap(({ base }) => (base.damage === null ? [] : base));
  const skipped = damaged.map(
    (base) =>
      `${keys.baseKey(base)} is damaged, an older base was used, and nothing is lost: ${base.damage}`,
  );
  const warnings: readonly string[] = [...skipped, ...(await warningsOfLater(history, atMs))];
  return {
    history,
    warnings,
    /** The last segment of the base, or a later one without which the state is another one. */
    needed: await findNeeded(history, atMs),
    damage: damaged.flatMap((base) => base.damage ?? []),
  };
}

/** @returns what can be restored, oldest first. @throws {AppError} operator if there is no base */
export async function listRanges(storage: ObjectStorage): Promise<ArchivedRange[]> {
  const catalog = await readCatalog(storage);
  const ranges: ArchivedRange[] = [];
  let covered: History | null = null;
  for (const base of catalog.bases) {
    // A base is named if it cannot be used, also if an older one leads to the same states.
    const isKnown =
      base.damage === null && covered !== null && keys.isAtOrBefore(base.last, covered.last);
    if (isKnown) continue;
    const history = await readHistory(catalog, base);
    const isRestorable = isUsable(history);
    ranges.push({
      generations: [base.generation, history.lastGeneration],
      times: isRestorable ? [new Date(base.timeMs), new Date(await endMs(history))] : null,
      loss: history.loss ?? lossOfRecord(catalog, base.generation),
    });
    covered = isRestorable ? history : covered;
  }
  return ranges.length > 0 ? ranges : failWithoutState(catalog);
}

/** @returns whether the archive leads to its end from a base after this segment; `null` if none is known to be damaged */
export async function isRestorable(storage: ObjectStorage, damaged: ObjectId | null) {
  const history = await readNewestHistory(await readCatalog(storage));
  if (history?.tail == null || history.loss !== null || !isUsable(history)) return false;
  return damaged === null || !keys.isAtOrBefore(history.base.first, damaged);
}
