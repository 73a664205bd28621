/** What the objects of an archive say. `keys.ts` has where they are. */
import { zstdDecompressSync } from "node:zlib";
import { AppError } from "../../base/error.ts";
import type { ArchiveCommit } from "../../domain/archive.ts";
import { baseKey, generationKey, heartbeatKey, type ObjectId, slotKey } from "./keys.ts";
import type { Machine, Progress, WalPlace } from "./machine.ts";

/** A period in which one server writes to the archive. Numbers begin with 1, and none is left out. */
export interface Generation {
  readonly number: number;
  /** Id of the archive: random, and the same in all generations. */
  readonly archive: string;
  /** Random. It identifies the database that has begun this generation. */
  readonly name: string;
  /** Number of the last segment of the generation before this one, whose log is sealed there; 0 if it has none. */
  readonly previousEnd: number;
  /**
   * The last segment of what the first one continues, of the newest generation that is not void; its number is 0 if that
   * generation has none. `null` if this generation begins with a base.
   */
  readonly parent: ObjectId | null;
  /** Of the lock of the database. @see DatabaseFiles.lockIdentity */
  readonly identity: string;
  readonly holder: string;
  readonly commit: ArchiveCommit;
}

export interface Chunk {
  readonly bytes: number;
  readonly sha256: string;
}

interface Slot extends ObjectId {
  /** Random: of the generation, or of who has sealed it. */
  readonly writer: string;
  /** All segments up to this one were in the archive when the slot was written. */
  readonly confirmed: number;
  /** Every commit of a segment was made at or before this time. */
  readonly timeMs: number;
}

/** The slot after the last segment: of a server that has stopped, or of another one that continues its archive. */
export interface Seal extends Slot {
  readonly kind: "closed" | "seal";
  readonly holder: string;
  /** Whether an operator, or a server whose disk fails, has written it, so that a standby takes over without waiting. */
  readonly promoted?: boolean;
}

/** What is in a slot, but for the part of the WAL. */
export type Head = SegmentHeader | Seal;

export interface SegmentHeader extends Slot, Chunk, WalPlace {
  readonly kind: "segment";
  /** Progress of the database as of this segment, or of an earlier one; `null` if it is unknown. */
  readonly progress: Progress | null;
  /** Times ascend since this segment, before which the clock was ahead. By default since the first one. */
  readonly ascendsFrom?: number;
}

/** A copy of the database file that was made while it changed. The segments from `first` to `last` complete it. */
export interface Base extends ObjectId {
  /** Both are of the generation of the base. */
  readonly first: ObjectId;
  /** The segment before `first` if nothing has changed meanwhile. */
  readonly last: ObjectId;
  readonly timeMs: number;
  readonly chunks: readonly Chunk[];
  readonly storedBytes: number;
  readonly progress: Progress | null;
}

export function failDamaged(what: string, problem: string): never {
  const damage = `${what} ${problem}`;
  throw new AppError("operator", `the archive is damaged: ${damage}`, { cause: { damage } });
}

/** @returns what is damaged; `null` for an error that {@link failDamaged} has not thrown */
export function damageOf(error: unknown): string | null {
  if (!(error instanceof AppError)) return null;
  const cause = error.cause as { readonly damage?: string } | undefined;
  return cause?.damage ?? null;
}

const LINE_FEED = 10;

function hashOf(bytes: Uint8Array): string {
  return new Bun.CryptoHasher("sha256").update(bytes).digest("hex");
}

/** @returns a line of JSON, and its hash as a second line */
export function encodeJson(value: unknown): Uint8Array<ArrayBuffer> {
  const json = Buffer.from(JSON.stringify(value));
  return new Uint8Array(Buffer.concat([json, Buffer.from(`\n${hashOf(json)}\n`)]));
}

/** Also a bound of times: no later one is a `Date`. */
const MAX_NUMBER = 8.64e15;
/** Size of the largest one, with room for later versions. */
const MAX_CHUNK_BYTES = 16 * 2 ** 20;
/** More than a disk has: segments say where they are written. */
const MAX_WAL_BYTES = 2 ** 42;

export function isNumber(value: unknown): value is number {
  return Number.isInteger(value) && Number(value) >= 0 && Number(value) <= MAX_NUMBER;
}

function isWithin(value: unknown, min: number, max: number): boolean {
  return isNumber(value) && value >= min && value <= max;
}

function isChunk({ bytes }: Chunk): boolean {
  return isWithin(bytes, 0, MAX_CHUNK_BYTES);
}

function isPart({ offset, end, previous, ascendsFrom = 1, number, ...head }: SegmentHeader) {
  const offsets = [offset, end.offset, previous === null ? 0 : previous.offset];
  const isPlace = offsets.every((each) => isWithin(each, 0, MAX_WAL_BYTES));
  const isText = typeof end.checksum === "string";
  return isChunk(head) && isPlace && isText && isWithin(ascendsFrom, 1, number);
}

/** @param isSound may throw if the value has another form. @throws {AppError} operator if it is not sound, or damaged */
export function decodeJson<Value>(
  key: string,
  body: Uint8Array,
  isSound: (value: Value) => boolean = () => true,
): Value {
  const length = body.indexOf(LINE_FEED);
  const json = body.subarray(0, length);
  const hash = new TextDecoder().decode(body.subarray(length + 1));
  if (length !== -1 && hash === `${hashOf(json)}\n`) {
    try {
      const value: Value = JSON.parse(new TextDecoder().decode(json));
      if (isSound(value)) return value;
    } catch {}
  }
  return failDamaged(key, "cannot be read");
}

export function decodeGeneration(number: number, body: Uint8Array): Generation {
  const isSound = ({ parent, ...record }: Generation) =>
    record.number === number &&
    [record.archive, record.name].every((text) => typeof text === "string") &&
    (parent === null || (isWithin(parent.generation, 1, number - 1) && isNumber(parent.number))) &&
    isNumber(record.previousEnd);
  return decodeJson(generationKey(number), body, isSound);
}

export function decodeBase(id: ObjectId, body: Uint8Array): Base {
  const isOwn = (segment: ObjectId) =>
    segment.generation === id.generation && isNumber(segment.number);
  const isSound = ({ first, last, timeMs, chunks, storedBytes }: Base) =>
    [first, last].every(isOwn) && [timeMs, storedBytes].every(isNumber) && chunks.every(isChunk);
  return { ...decodeJson(baseKey(id), body, isSound), ...id };
}

export function decodeChunk(key: string, compressed: Uint8Array, { bytes, sha256 }: Chunk): Buffer {
  if (hashOf(compressed) !== sha256) failDamaged(key, "does not match its checksum");
  try {
    const expanded = zstdDecompressSync(compressed, { maxOutputLength: bytes + 1 });
    if (expanded.length === bytes) return expanded;
  } catch {
    // It expands to more bytes.
  }
  return failDamaged(key, "has another size");
}

export async function encodeChunk(bytes: Uint8Array<ArrayBuffer>, machine: Machine) {
  const body = await machine.compress(bytes);
  return { body, chunk: { bytes: bytes.length, sha256: hashOf(body) } satisfies Chunk };
}

/** Bounds records, heartbeats and announcements, and what a slot has before its part of the WAL. */
export const HEAD_BYTES = 2 ** 16;

/** @returns the length of what `encodeJson` has returned; 0 if that is not at the beginning */
function headLength(body: Uint8Array): number {
  return body.indexOf(LINE_FEED, body.indexOf(LINE_FEED) + 1) + 1;
}

/** @param body may be cut after {@link HEAD_BYTES}. @throws {AppError} operator if it is damaged, or of another slot */
export function decodeHead(id: ObjectId, body: Uint8Array): Head {
  const isSound = (head: Head) =>
    head.generation === id.generation &&
    head.number === id.number &&
    typeof head.writer === "string" &&
    isNumber(head.confirmed) &&
    head.confirmed < id.number &&
    isNumber(head.timeMs) &&
    (head.kind === "segment" ? isPart(head) : head.kind === "closed" || head.kind === "seal");
  return decodeJson(slotKey(id), body.subarray(0, headLength(body)), isSound);
}

export function decodeContents(header: SegmentHeader, body: Uint8Array<ArrayBuffer>): Buffer {
  return decodeChunk(slotKey(header), body.subarray(headLength(body)), header);
}

export function decodeSegment(id: ObjectId, body: Uint8Array<ArrayBuffer>) {
  const header = decodeHead(id, body);
  if (header.kind !== "segment") return failDamaged(slotKey(id), "is no segment");
  return { header, bytes: decodeContents(header, body) };
}

export interface Heartbeat extends Pick<Slot, "generation" | "writer" | "confirmed"> {
  /** No two of a generation are equal. */
  readonly sequence: number;
  readonly intervalMs: number;
  /** Whether the generation has a base, or continues another one. */
  readonly hasBase: boolean;
}

/** Interval of the heartbeats of a server: at most 12 small objects a minute. */
export const HEARTBEAT_MS = 5_000;

export function decodeHeartbeat(generation: number, body: Uint8Array): Heartbeat {
  const isSound = (beat: Heartbeat) =>
    beat.generation === generation &&
    [beat.confirmed, beat.sequence].every(isNumber) &&
    isWithin(beat.intervalMs, 1, HEARTBEAT_MS);
  return decodeJson(heartbeatKey(generation), body, isSound);
}

/** How many segments are sent while the first is not stored. No more follow a seal: a reader finds it among so many slots. */
export const MAX_SENDING = 8;
