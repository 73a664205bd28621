/**
 * The objects of an archive, by their keys:
 *
 *     generations/<generation>            a server that wrote to the archive, and where the one before it ended
 *     log/<generation>/<block>/<number>   slots: segments, which are consecutive parts of the WAL, and after them a seal
 *     heartbeats/<generation>             written again and again while the server runs
 *     standby                             written again and again by each standby: see announcement.ts
 *     bases/<generation>-<number>         manifests of copies of the database file, each written last
 *     chunks/<generation>-<number>/<chunk> their contents
 *     probe/<random>/<number>             no part of the archive: see probe.ts
 *
 * Slots are never replaced, and a record only by its own server, if it is missing or damaged: both are created under keys
 * that follow from numbers alone. A block has 1,000 slots: a server can write a million in a day, and a directory is listed
 * as a whole.
 */

/** A segment, by its generation and its number in it. Numbers begin with 1. */
export interface SegmentId {
  readonly generation: number;
  readonly number: number;
}

const GENERATION_DIGITS = 8;
const NUMBER_DIGITS = 10;
const CHUNK_DIGITS = 6;
const BLOCK_DIGITS = 3;
export const SLOTS_PER_BLOCK = 10 ** BLOCK_DIGITS;

function pad(number: number, digits: number): string {
  return `${number}`.padStart(digits, "0");
}

export const prefixes = {
  generations: "generations/",
  log: "log/",
  heartbeats: "heartbeats/",
  bases: "bases/",
  chunks: "chunks/",
};

export function generationKey(number: number): string {
  return `${prefixes.generations}${pad(number, GENERATION_DIGITS)}`;
}

export function heartbeatKey(generation: number): string {
  return `${prefixes.heartbeats}${pad(generation, GENERATION_DIGITS)}`;
}

export function logPrefix(generation: number): string {
  return `${prefixes.log}${pad(generation, GENERATION_DIGITS)}/`;
}

/** @returns what the keys of the slots in the block of this one begin with */
export function blockPrefix({ generation, number }: SegmentId): string {
  const block = pad(number, NUMBER_DIGITS).slice(0, -BLOCK_DIGITS);
  return `${logPrefix(generation)}${block}/`;
}

export function slotKey({ generation, number }: SegmentId): string {
  return `${blockPrefix({ generation, number })}${pad(number, NUMBER_DIGITS)}`;
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

/** @returns what has this key; `null` for another key. Numbers have at most 10 digits */
export function parseKey(key: string, keyOf: (id: SegmentId) => string): SegmentId | null {
  const numbers = (key.match(/\d{1,10}/g) ?? []).map(Number);
  const id = { generation: numbers[0] ?? 0, number: numbers.at(-1) ?? 0 };
  return keyOf(id) === key ? id : null;
}

export function parseSlotKey(key: string): SegmentId | null {
  return parseKey(key, slotKey);
}
