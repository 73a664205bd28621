/**
 * What an archive has: records, logs and bases, and the states to which they lead. Every object that is missing is named,
 * and never taken for the end: a log ends where it is sealed; one that is not sealed ends after what its server has
 * confirmed.
 */
import { fail } from "../../../base/error.ts";
import type { ArchivedRange } from "../../../domain/archive.ts";
import type { ObjectStorage } from "../../../domain/object-storage.ts";
import {
  type Base,
  damageOf,
  decodeBase,
  decodeGeneration,
  decodeHead,
  decodeJson,
  failDamaged,
  type Generation,
  HEAD_BYTES,
  HEARTBEAT_MS,
  isNumber,
  isWithin,
  MAX_SENDING,
  type Seal,
  type SegmentHeader,
  type Slot,
} from "../format.ts";
import {
  baseKey,
  blockPrefix,
  generationKey,
  heartbeatKey,
  logPrefix,
  parseKey,
  parseSlotKey,
  prefixes,
  type SegmentId,
  SLOTS_PER_BLOCK,
  slotKey,
} from "../keys.ts";
import type { Progress } from "../machine.ts";

/** How often something that seems to be missing is looked for: a server may write meanwhile. */
const MAX_LOOKS = 3;
/** Slots that may follow the first seal: of a server that did not know of it, and the seals of promotions. */
const MAX_AFTER_SEAL = 2 * MAX_SENDING;
/** Small objects that are read at the same time. */
const MAX_READS = 16;

interface StoredSegment extends SegmentId {
  /** As stored: compressed. */
  readonly bytes: number;
}

export interface LogExtent {
  /** Without those after the first one that is missing. */
  readonly segments: readonly StoredSegment[];
  readonly isSealed: boolean;
  /** The first slot that may be sealed: segments before it are known to have been stored. */
  readonly sealFrom: SegmentId;
  /** What is missing; `null` if nothing is. */
  readonly loss: string | null;
}

/** Runs work for each item, several at the same time. @returns the results, in the order of the items */
async function mapBounded<Item, Result>(
  items: readonly Item[],
  work: (item: Item) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = [];
  const rest = items.entries();
  const runRest = async () => {
    for (const [at, item] of rest) results[at] = await work(item);
  };
  await Promise.all(Array.from({ length: MAX_READS }, runRest));
  return results;
}

/** @returns `null` if it is damaged, and the reason is not needed */
export async function orNull<Result>(work: Promise<Result>): Promise<Result | null> {
  try {
    return await work;
  } catch (error) {
    if (damageOf(error) === null) throw error;
    return null;
  }
}

/**
 * Lists block by block. Without an end, it stops at an empty block, and the first slot after that shows that the block is
 * missing.
 * @returns the slots of one log that are not empty, sorted, perhaps with some after the end
 */
async function listSlots(
  storage: ObjectStorage,
  from: SegmentId,
  end: number | null,
): Promise<StoredSegment[]> {
  const slots: StoredSegment[] = [];
  const firstOfBlock = from.number - (from.number % SLOTS_PER_BLOCK);
  for (let number = firstOfBlock; end === null || number <= end; number += SLOTS_PER_BLOCK) {
    const prefix = blockPrefix({ ...from, number });
    const block = await storage.list(prefix);
    const isEmpty = block.length === 0;
    if (isEmpty) block.push(...(await storage.list(logPrefix(from.generation), 1, prefix)));
    for (const { key, bytes } of block) {
      const slot = parseSlotKey(key);
      if (slot !== null && slot.number >= from.number) slots.push({ ...slot, bytes });
    }
    if (isEmpty) break;
  }
  // Not in the order of the list, which a storage may get wrong.
  return slots.sort((a, b) => a.number - b.number);
}

export function soundHead(id: SegmentId, body: Uint8Array): SegmentHeader | Seal | null {
  try {
    return decodeHead(id, body);
  } catch {
    return null;
  }
}

/** @returns what is in the slot, without the contents of a segment; `null` if it is empty or damaged */
export async function readHead(storage: Pick<ObjectStorage, "get">, id: SegmentId) {
  const body = await storage.get(slotKey(id), HEAD_BYTES);
  return body === null ? null : soundHead(id, body);
}

/**
 * @param end the slot of the seal. Segments that arrived late can be between it and the seal of a promotion
 * @returns whether a standby may take over without waiting
 */
export async function isPromoted(storage: Pick<ObjectStorage, "get">, end: SegmentId) {
  const slots = Array.from({ length: MAX_SENDING + 2 }, (_, at) => ({
    ...end,
    number: end.number + at,
  }));
  const heads = await Promise.all(slots.map((slot) => readHead(storage, slot)));
  return heads.some((head) => head !== null && head.kind !== "segment" && head.promoted === true);
}

export interface Heartbeat extends Pick<Slot, "generation" | "writer" | "confirmed"> {
  /** No two of a generation are equal. */
  readonly sequence: number;
  /** Time until the next one. */
  readonly intervalMs: number;
  /** Whether the generation has a base, or continues another one. Earlier versions did not say it. */
  readonly hasBase?: boolean;
}

/**
 * @returns `null` if there is none
 * @throws {AppError} operator if it is damaged
 */
export async function readHeartbeat(storage: Pick<ObjectStorage, "get">, generation: number) {
  const key = heartbeatKey(generation);
  const body = await storage.get(key, HEAD_BYTES);
  const isSound = (beat: Heartbeat) =>
    beat.generation === generation &&
    [beat.confirmed, beat.sequence].every(isNumber) &&
    isWithin(beat.intervalMs, 1, HEARTBEAT_MS);
  return body === null ? null : decodeJson(key, body, isSound);
}

/**
 * @param from a segment that retention has not deleted, nor any after it
 * @param end number of the last segment; `null` unless a record says where the log was sealed
 * @param confirmed number of a segment that was stored, with all before it; 0 if none is known
 */
export async function readLog(
  storage: ObjectStorage,
  from: SegmentId,
  end: number | null,
  confirmed: number,
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
    const silence = isSilent ? `${heartbeatKey(generation)} is missing or damaged` : null;
    const loss =
      number <= stored ? `segment ${number} of generation ${generation} is missing` : silence;
    if (loss !== null && look < MAX_LOOKS) continue;
    const sealFrom = {
      generation,
      number: last === null ? Math.max(number, stored + 1) : last + 1,
    };
    return { segments, isSealed: last !== null, sealFrom, loss };
  }
}

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
    let newest = Math.max(recorded, ...ids.map(({ generation }) => generation));
    // Records can be missing, also several.
    for (let isLast = false; !isLast; ) {
      const [beyond] = await storage.list(prefixes.log, 1, logPrefix(newest) + LAST_KEY);
      const slot = beyond === undefined ? null : parseSlotKey(beyond.key);
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
    const counted = ids.filter(({ generation }) => !isVoid({ generations }, generation));
    const bases = await mapBounded(counted, (id) => readBase(storage, id));
    return { newest, generations, bases: bases.filter((base) => base !== null) };
  }
}

type Generations = Pick<Catalog, "generations">;

/**
 * A generation that begins anew acknowledges nothing before its first base. A server that has proved that it never had one
 * continues what was before it, and then it counts for nothing, also if a base arrives later.
 * @returns whether it is one of those
 */
function isVoid({ generations }: Generations, number: number): boolean {
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
 * @throws {AppError} operator if it is missing or damaged, so that it is unknown whose the archive is
 */
export function requireNewest({ newest, generations }: Catalog): Generation | null {
  if (newest === 0) return null;
  return generations.get(newest) ?? failDamaged(generationKey(newest), "is missing or damaged");
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

async function readHistory(
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
function isUsable({ base, last, loss }: History): boolean {
  return base.damage === null && (loss === null || isAtOrBefore(base.last, last));
}

/**
 * Looks for a base that can be used. An older one leads to the same states, unless a generation has begun anew since.
 * @param candidates newest first
 * @returns the history of each that was tried. Only the last one can be usable
 */
async function tryBases(
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

/**
 * What was written while the clock was ahead has a later time than what follows it.
 * @returns the last segment of the base, or a later one that was written until this time, from which on times ascend
 */
async function findNeeded(storage: ObjectStorage, { base, segments }: History, atMs: number) {
  for (let end = Number.isFinite(atMs) ? segments.length - 1 : -1; end >= 0; ) {
    const last = await readHead(storage, segments[end] ?? base.last);
    const length = last?.kind === "segment" ? last.number - (last.ascendsFrom ?? 1) : 0;
    const first = await readHead(storage, segments[Math.max(0, end - length)] ?? base.last);
    if (first !== null && first.timeMs <= atMs)
      return isAtOrBefore(first, base.last) ? base.last : first;
    end -= length + 1;
  }
  return base.last;
}

export interface FoundState {
  readonly history: History;
  /** The last segment of the base, or a later one without which the state is another one. */
  readonly needed: SegmentId;
  /** What is damaged of newer bases. */
  readonly damage: readonly string[];
  /** What should be repaired, or is not in the state. */
  readonly warnings: readonly string[];
}

/**
 * @param problems all that prevent the restore
 * @param beforeMs a time before it, which is named if the archive reaches back to it
 * @throws {AppError} operator
 */
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

/** @returns since when the history has no more commits */
async function endMs(storage: ObjectStorage, { base, last }: History): Promise<number> {
  const head = await readHead(storage, last);
  return isAtOrBefore(last, base.last) ? base.timeMs : (head?.timeMs ?? base.timeMs);
}

/** @returns records that are missing, and what generations after the history have written until then, and no base has */
async function warningsOfLater(
  storage: ObjectStorage,
  catalog: Catalog,
  { base, lastGeneration, loss }: History,
  atMs: number,
): Promise<string[]> {
  const { newest } = catalog;
  // Nothing of it is needed but the base and the log.
  const lost = lossOfRecord(catalog, base);
  const warnings = lost === null ? [] : [lost];
  // A loss says that the archive has more.
  for (let number = lastGeneration + 1; loss === null && number <= newest; number += 1) {
    if (isVoid(catalog, number)) continue;
    if ((await storage.list(logPrefix(number), 1)).length === 0) continue;
    const head = await readHead(storage, { generation: number, number: 1 });
    if (head !== null && (head.kind !== "segment" || head.timeMs > atMs)) continue;
    const since = head === null ? "" : ` since ${new Date(head.timeMs).toISOString()}`;
    warnings.push(
      `what generation ${number} has written${since} is not restored, because no base has it`,
    );
  }
  return warnings;
}

/** @throws {AppError} operator: there is no base, or none that is old enough */
async function failWithoutState(storage: ObjectStorage, { bases }: Catalog): Promise<never> {
  const [oldest] = bases;
  if (oldest !== undefined)
    fail("operator", `the archive begins at ${new Date(oldest.timeMs).toISOString()}`);
  return fail("operator", (await isUsed(storage)) ? NO_BASE : "the archive is empty");
}

/**
 * @param at a time in the past; `null` for the newest state
 * @throws {AppError} operator if the archive is empty, does not reach back to that time, or what is needed is missing
 */
export async function findState(
  storage: ObjectStorage,
  catalog: Catalog,
  at: Date | null,
): Promise<FoundState> {
  const atMs = at?.getTime() ?? Number.POSITIVE_INFINITY;
  const candidates = catalog.bases.filter(({ timeMs }) => timeMs <= atMs).reverse();
  const tried = await tryBases(storage, catalog, candidates);
  const history = tried.at(-1) ?? (await failWithoutState(storage, catalog));
  if (history.loss !== null) {
    const untilMs = isUsable(history) ? await endMs(storage, history) : history.base.timeMs - 1;
    const losses = new Set(tried.flatMap(({ loss }) => loss ?? []));
    if (untilMs < atMs) failUnrestorable([...losses], untilMs, catalog);
  }
  const damaged = tried.flatMap(({ base }) => (base.damage === null ? [] : base));
  const skipped = damaged.map(
    (base) =>
      `${baseKey(base)} is damaged, an older base was used, and nothing is lost: ${base.damage}`,
  );
  const later = await warningsOfLater(storage, catalog, history, atMs);
  const damage = damaged.flatMap((base) => base.damage ?? []);
  const needed = await findNeeded(storage, history, atMs);
  return { history, needed, damage, warnings: [...skipped, ...later] };
}

function lossOfRecord({ generations }: Catalog, { generation }: StoredBase): string | null {
  return generations.has(generation) ? null : `${generationKey(generation)} is missing or damaged`;
}

/**
 * @returns the times that can be restored, oldest first, and what is missing after each range
 * @throws {AppError} operator if there is none
 */
export async function listRanges(storage: ObjectStorage): Promise<ArchivedRange[]> {
  const catalog = await readCatalog(storage);
  const ranges: ArchivedRange[] = [];
  let covered: History | null = null;
  for (const base of catalog.bases) {
    // A base is named if it cannot be used, also if an older one leads to the same states.
    const isKnown =
      base.damage === null && covered !== null && isAtOrBefore(base.last, covered.last);
    if (isKnown) continue;
    const history = await readHistory(storage, catalog, base);
    const isRestorable = isUsable(history);
    ranges.push({
      generations: [base.generation, history.lastGeneration],
      times: isRestorable ? [new Date(base.timeMs), new Date(await endMs(storage, history))] : null,
      loss: history.loss ?? lossOfRecord(catalog, base),
    });
    covered = isRestorable ? history : covered;
  }
  return ranges.length > 0 ? ranges : failWithoutState(storage, catalog);
}

/**
 * @param damaged a segment; `null` if none is known to be
 * @returns whether the archive leads to its end from a base after that
 */
export async function isRestorable(
  storage: ObjectStorage,
  damaged: SegmentId | null,
): Promise<boolean> {
  const { history } = await readEnd(storage, await readCatalog(storage));
  if (history?.tail == null || history.loss !== null || !isUsable(history)) return false;
  return damaged === null || !isAtOrBefore(history.base.first, damaged);
}
