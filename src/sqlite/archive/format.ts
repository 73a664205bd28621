/**
 * The objects of an archive:
 *
 *     generations/<generation>                  a server that wrote to the archive, and where its history begins
 *     log/<generation>/<block>/<number>-<time>  segments: consecutive parts of the WAL
 *     bases/<generation>-<number>               manifests of copies of the database file, each written last
 *     chunks/<generation>-<number>/<chunk>      their contents
 *
 * A block has 1,000 segments: a server can write a million in a day, and a directory is listed as a whole.
 */
import { zstdDecompressSync } from "node:zlib";
import { AppError } from "../../base/error.ts";
import type { Progress } from "./progress.ts";
import type { WalPosition } from "./wal-reader.ts";

/** A segment, by its generation and its number in it. Numbers begin with 1. */
export interface SegmentId {
  readonly generation: number;
  readonly number: number;
}

/** A period in which one server writes to the archive. */
export interface Generation {
  readonly number: number;
  /** Random. It identifies the database that has begun this generation. */
  readonly name: string;
  /** The last segment of the earlier generation that this one continues; `null` if it begins with a base. */
  readonly parent: SegmentId | null;
}

export interface SegmentKey extends SegmentId {
  /** Every commit of the segment was made at or before this time. */
  readonly timeMs: number;
}

/** A part of a file: its size, and the hash of its compressed form. */
export interface Chunk {
  readonly bytes: number;
  readonly sha256: string;
}

/** What a segment says about its part of the WAL. */
export interface SegmentHeader extends SegmentId, Chunk {
  readonly salt: string;
  readonly offset: number;
  readonly end: WalPosition;
  /** Where the segment before it ends, also in an earlier generation; `null` if the history begins with this one. */
  readonly previous: WalPosition | null;
  /** The last segment of the generation that was in the archive, with all before it, when this one was written. */
  readonly stored: number;
  /** That of the database when it had this segment, or an earlier one; `null` if it is unknown. */
  readonly progress: Progress | null;
}

/**
 * A copy of the database file that was made while it changed. The segments from `first` to `last` make it a state of the
 * database: they have every page that has changed meanwhile.
 */
export interface Base extends SegmentId {
  readonly first: SegmentId;
  /** The segment before `first` if nothing has changed meanwhile. */
  readonly last: SegmentId;
  /** When it was complete. */
  readonly timeMs: number;
  readonly chunks: readonly Chunk[];
  /** Size of the chunks as stored: compressed. */
  readonly storedBytes: number;
  /** As in a segment, with the last one. */
  readonly progress: Progress | null;
}

const GENERATION_DIGITS = 8;
const NUMBER_DIGITS = 10;
const TIME_DIGITS = 13;
const CHUNK_DIGITS = 6;
const BLOCK_DIGITS = 3;
export const SEGMENTS_PER_BLOCK = 10 ** BLOCK_DIGITS;

function pad(number: number, digits: number): string {
  return `${number}`.padStart(digits, "0");
}

export const prefixes = {
  generations: "generations/",
  segments: "log/",
  bases: "bases/",
  chunks: "chunks/",
};
/** Greater than what follows a prefix in any key. */
export const LAST_KEY = "~";

export function generationKey(number: number): string {
  return `${prefixes.generations}${pad(number, GENERATION_DIGITS)}`;
}

export function segmentPrefix(generation: number): string {
  return `${prefixes.segments}${pad(generation, GENERATION_DIGITS)}/`;
}

export function segmentKey({ generation, number, timeMs }: SegmentKey): string {
  const time = pad(Math.floor(timeMs), TIME_DIGITS);
  return `${segmentBlock({ generation, number })}${pad(number, NUMBER_DIGITS)}-${time}`;
}

/** @returns what the keys of the segments in the block of this one begin with */
export function segmentBlock({ generation, number }: SegmentId): string {
  const block = pad(number, NUMBER_DIGITS).slice(0, -BLOCK_DIGITS);
  return `${segmentPrefix(generation)}${block}/`;
}

function baseName({ generation, number }: SegmentId): string {
  return `${pad(generation, GENERATION_DIGITS)}-${pad(number, NUMBER_DIGITS)}`;
}

export function baseKey(base: SegmentId): string {
  return prefixes.bases + baseName(base);
}

export function chunkPrefix(base: SegmentId): string {
  return `${prefixes.chunks}${baseName(base)}/`;
}

export function chunkKey(base: SegmentId, chunk: number): string {
  return chunkPrefix(base) + pad(chunk, CHUNK_DIGITS);
}

/** Also a bound of times: no later one is a `Date`. */
const MAX_NUMBER = 8.64e15;

function isNumber(value: unknown): value is number {
  return Number.isInteger(value) && Number(value) >= 0 && Number(value) <= MAX_NUMBER;
}

/** @returns the numbers that the groups of this form match; `null` for another key */
function numbersIn(key: string, form: RegExp): number[] | null {
  const numbers = form.exec(key)?.slice(1).map(Number);
  return numbers?.every(isNumber) ? numbers : null;
}

export function parseGenerationKey(key: string): number | null {
  return numbersIn(key, /^generations\/(\d+)$/)?.[0] ?? null;
}

export function parseSegmentKey(key: string): SegmentKey | null {
  const [generation, number, timeMs] = numbersIn(key, /^log\/(\d+)\/\d+\/(\d+)-(\d+)$/) ?? [];
  if (generation === undefined || number === undefined || timeMs === undefined) return null;
  return { generation, number, timeMs };
}

export function parseBaseKey(key: string): SegmentId | null {
  const [generation, number] = numbersIn(key, /^bases\/(\d+)-(\d+)$/) ?? [];
  if (generation === undefined || number === undefined) return null;
  return { generation, number };
}

/** Cause of an error of what is stored: the storage itself works. */
interface Damage {
  readonly damage: string;
}

/** @throws {AppError} operator */
export function failDamaged(what: string, problem: string): never {
  const damage = `${what} ${problem}`;
  const cause: Damage = { damage };
  throw new AppError("operator", `the archive is damaged: ${damage}`, { cause });
}

/** @returns what is damaged; `null` for an error that {@link failDamaged} has not thrown */
export function damageOf(error: unknown): string | null {
  if (!(error instanceof AppError)) return null;
  const cause = error.cause as Partial<Damage> | undefined;
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

/** @throws {AppError} operator if it is not what `encodeJson` returned */
export function decodeJson<Value>(key: string, body: Uint8Array): Value {
  const length = body.indexOf(LINE_FEED);
  const json = body.subarray(0, length);
  const hash = new TextDecoder().decode(body.subarray(length + 1));
  if (length === -1 || hash !== `${hashOf(json)}\n`) failDamaged(key, "cannot be read");
  try {
    return JSON.parse(new TextDecoder().decode(json));
  } catch {
    return failDamaged(key, "cannot be read");
  }
}

function isId(value: SegmentId | null | undefined): value is SegmentId {
  return isNumber(value?.generation) && isNumber(value.number);
}

/** Size of the largest one, with room for later versions. */
const MAX_CHUNK_BYTES = 16 * 2 ** 20;

function isChunk(value: Partial<Chunk> | null): boolean {
  return isNumber(value?.bytes) && value.bytes <= MAX_CHUNK_BYTES;
}

/** @throws {AppError} operator if it is not the record of this generation, which continues an earlier one */
export function decodeGeneration(number: number, body: Uint8Array): Generation {
  const key = generationKey(number);
  const record = decodeJson<Generation | null>(key, body);
  const parent = record?.parent;
  const isSound = parent === null || (isId(parent) && parent.generation < number);
  return record?.number === number && isSound ? record : failDamaged(key, "cannot be read");
}

/** @throws {AppError} operator if it is not the manifest of a base */
export function decodeBase(id: SegmentId, body: Uint8Array): Base {
  const key = baseKey(id);
  const base = { ...decodeJson<Base>(key, body), generation: id.generation, number: id.number };
  const { first, last, timeMs, chunks, storedBytes } = base;
  const isSound = isId(first) && isId(last) && isNumber(timeMs) && isNumber(storedBytes);
  const hasChunks = Array.isArray(chunks) && chunks.every(isChunk);
  return isSound && hasChunks ? base : failDamaged(key, "cannot be read");
}

/** @returns `null` if it is malformed, or expands to more bytes */
function expand(compressed: Uint8Array, maxBytes: number): Buffer<ArrayBuffer> | null {
  try {
    return zstdDecompressSync(compressed, { maxOutputLength: maxBytes }) as Buffer<ArrayBuffer>;
  } catch {
    return null;
  }
}

/** Fast: an archive is written all the time, and read rarely. */
const COMPRESSION = { level: 1 };

/** @throws {AppError} operator if the object has other contents */
export function decodeChunk(
  key: string,
  compressed: Uint8Array<ArrayBuffer>,
  { bytes, sha256 }: Chunk,
): Uint8Array<ArrayBuffer> {
  if (hashOf(compressed) !== sha256) failDamaged(key, "does not match its checksum");
  const expanded = expand(compressed, bytes + 1);
  return expanded?.length === bytes ? expanded : failDamaged(key, "has another size");
}

export async function encodeChunk(bytes: Uint8Array<ArrayBuffer>) {
  const body = (await Bun.zstdCompress(bytes, COMPRESSION)) as Buffer<ArrayBuffer>;
  return { body, chunk: { bytes: bytes.length, sha256: hashOf(body) } satisfies Chunk };
}

/** @returns the header, as `encodeJson` returns it, and the compressed part */
export async function encodeSegment(
  header: Omit<SegmentHeader, keyof Chunk>,
  bytes: Uint8Array<ArrayBuffer>,
): Promise<Uint8Array<ArrayBuffer>> {
  const { body, chunk } = await encodeChunk(bytes);
  return new Uint8Array(Buffer.concat([encodeJson({ ...header, ...chunk }), body]));
}

/** @throws {AppError} operator if the segment is damaged, or is another one */
export function decodeSegment(key: string, body: Uint8Array<ArrayBuffer>) {
  const length = body.indexOf(LINE_FEED, body.indexOf(LINE_FEED) + 1) + 1;
  const header = decodeJson<SegmentHeader | null>(key, body.subarray(0, length));
  const id = parseSegmentKey(key);
  if (header === null || header.generation !== id?.generation || header.number !== id.number)
    return failDamaged(key, "belongs to another segment");
  const { stored, number, previous, end } = header;
  const isSound = stored >= 0 && stored < number && previous !== undefined;
  if (!isSound || !isChunk(header) || typeof end?.checksum !== "string")
    failDamaged(key, "cannot be read");
  return { header, bytes: decodeChunk(key, body.subarray(length), header) };
}
