/**
 * Reads how far the log of a generation goes. Every slot that is missing is named, and never taken for the end: a log ends
 * where it is sealed; one that is not sealed ends after what its server has confirmed.
 */

import type { ObjectStorage } from "../../../domain/object-storage.ts";
import {
  damageOf,
  decodeHead,
  decodeJson,
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
  blockPrefix,
  heartbeatKey,
  logPrefix,
  parseSlotKey,
  type SegmentId,
  SLOTS_PER_BLOCK,
  slotKey,
} from "../keys.ts";

/** How often something that seems to be missing is looked for: a server may write meanwhile. */
export const MAX_LOOKS = 3;
/** Slots that may follow the first seal: of a server that did not know of it, and the seals of promotions. */
const MAX_AFTER_SEAL = 2 * MAX_SENDING;
/** Small objects that are read at the same time. */
const MAX_READS = 16;

export interface StoredSegment extends SegmentId {
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
export async function mapBounded<Item, Result>(
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

/** @param end the seal of a log. @returns whether an operator has sealed it, or did so when it had ended already */
export async function isPromoted(storage: Pick<ObjectStorage, "get">, end: SegmentId) {
  const slots = [end, { ...end, number: end.number + 1 }];
  const heads = await Promise.all(slots.map((slot) => readHead(storage, slot)));
  return heads.some((head) => head?.kind === "seal" && head.promoted);
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
