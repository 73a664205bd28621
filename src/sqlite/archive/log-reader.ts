/**
 * Reads how far the log of a generation goes. Every slot that is missing is named, and never taken for the end: a log ends
 * where it is sealed; one that is not sealed ends behind what its server has confirmed.
 */
import type { ObjectStorage } from "../../domain/object-storage.ts";
import {
  blockPrefix,
  decodeHeartbeat,
  HEAD_BYTES,
  heartbeatKey,
  logPrefix,
  parseSlotKey,
  type SegmentId,
  SLOTS_PER_BLOCK,
  slotKey,
} from "./format.ts";
import { readHead } from "./log.ts";

/** How often something that seems to be missing is looked for: a server may write meanwhile. */
export const MAX_LOOKS = 3;
/** Small objects that are read at the same time. */
const MAX_READS = 16;
/** Slots at the end of a log that are read for what they say. Behind its seal are fewer: a server sends four at once. */
const TAIL_SLOTS = 8;

export interface StoredSegment extends SegmentId {
  /** As stored: compressed. */
  readonly bytes: number;
}

/** How the log of the newest generation ends. */
export interface Tail {
  /** Without those behind the first one that is missing. */
  readonly segments: readonly StoredSegment[];
  /** Whether nothing can follow. */
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

export function nameOf({ generation, number }: SegmentId): string {
  return `segment ${number} of generation ${generation}`;
}

/**
 * @param end the last slot to list; `null` if that is unknown: then blocks are listed until one is empty, and after that
 * only the first slot that follows, which shows that the block is missing
 * @returns the slots of one log that are not empty, sorted
 */
async function listSlots(
  storage: ObjectStorage,
  from: SegmentId,
  end: number | null,
): Promise<StoredSegment[]> {
  const slots: StoredSegment[] = [];
  for (let { number } = from; end === null || number <= end; number += SLOTS_PER_BLOCK) {
    // The first one of the block.
    number -= number % SLOTS_PER_BLOCK;
    const prefix = blockPrefix({ ...from, number });
    const block = await storage.list(prefix);
    const isEmpty = block.length === 0;
    if (isEmpty && end === null)
      block.push(...(await storage.list(logPrefix(from.generation), 1, prefix)));
    for (const { key, bytes } of block) {
      const slot = parseSlotKey(key);
      const isAsked = slot !== null && slot.number >= from.number;
      if (isAsked && slot.number <= (end ?? slot.number)) slots.push({ ...slot, bytes });
    }
    if (isEmpty) break;
  }
  // Not in the order of the list, which a storage may get wrong.
  return slots.sort((a, b) => a.number - b.number);
}

/** @returns those before the first one that is missing */
function contiguous(slots: readonly StoredSegment[], from: SegmentId): StoredSegment[] {
  return slots.filter(({ number }, index) => number === from.number + index);
}

/** @returns whether a slot that was not listed has been written since */
async function isWritten(storage: ObjectStorage, slot: SegmentId): Promise<boolean> {
  return (await storage.get(slotKey(slot), HEAD_BYTES)) !== null;
}

/**
 * A server may write to the log meanwhile: then it is looked at again.
 * @param from a segment that retention has not deleted, nor any after it
 * @param confirmed number of a segment that is known to have been stored, with all before it; 0 if none is
 */
export async function readTail(
  storage: ObjectStorage,
  from: SegmentId,
  confirmed: number,
): Promise<Tail> {
  const { generation } = from;
  const key = heartbeatKey(generation);
  for (let look = 1; ; look += 1) {
    // First, because it confirms what must be in the list.
    const body = await storage.get(key, HEAD_BYTES);
    const beat = body === null ? null : decodeHeartbeat(generation, body);
    const slots = await listSlots(storage, from, null);
    const read = await mapBounded(slots.slice(-TAIL_SLOTS), (slot) => readHead(storage, slot));
    const heads = read.filter((head) => head !== null);
    const whole = contiguous(slots, from);
    const next = { generation, number: from.number + whole.length };
    const seal = heads.find(({ kind }) => kind !== "segment");
    const marks = [confirmed, beat?.confirmed ?? 0, ...heads.map((head) => head.confirmed)];
    const stored = seal === undefined ? Math.max(...marks) : seal.number - 1;
    const isMissing = next.number <= stored;
    // A server writes its first heartbeat before its first segment.
    const isSilent = seal === undefined && beat === null && slots.length > 0;
    const hasMoved =
      (isMissing && (await isWritten(storage, next))) ||
      (isSilent && body === null && (await storage.get(key, HEAD_BYTES)) !== null);
    if (hasMoved && look < MAX_LOOKS) continue;
    const silence = isSilent ? `${key} is missing or damaged` : null;
    return {
      segments: whole.filter(({ number }) => number < (seal?.number ?? next.number)),
      isSealed: seal !== undefined,
      sealFrom: seal ?? { generation, number: Math.max(next.number, stored + 1) },
      loss: isMissing ? `${nameOf(next)} is missing` : silence,
    };
  }
}

/** Segments of a log whose end is known. */
export interface SealedPart {
  readonly from: SegmentId;
  readonly end: number;
}

export async function readSealed(storage: ObjectStorage, { from, end }: SealedPart) {
  const whole = contiguous(await listSlots(storage, from, end), from);
  const next = { ...from, number: from.number + whole.length };
  return { segments: whole, loss: next.number <= end ? `${nameOf(next)} is missing` : null };
}
