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

/** A slot of a log, with the segment that is in it, or a base: by its generation, and its number there, from 1 on. */
export interface ObjectId {
  readonly generation: number;
  readonly number: number;
}

/** @returns the slot so far after this one, or before it */
export function shift({ generation, number }: ObjectId, by: number): ObjectId {
  return { generation, number: number + by };
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

export function blockPrefix({ generation, number }: ObjectId): string {
  const block = pad(number, NUMBER_DIGITS).slice(0, -BLOCK_DIGITS);
  return `${logPrefix(generation)}${block}/`;
}

export function slotKey({ generation, number }: ObjectId): string {
  return `${blockPrefix({ generation, number })}${pad(number, NUMBER_DIGITS)}`;
}

function baseName({ generation, number }: ObjectId): string {
  return `${pad(generation, GENERATION_DIGITS)}-${pad(number, NUMBER_DIGITS)}`;
}

export function baseKey(base: ObjectId): string {
  return prefixes.bases + baseName(base);
}

export function chunkPrefix(base: ObjectId): string {
  return `${prefixes.chunks}${baseName(base)}/`;
}

export function chunkKey(base: ObjectId, chunk: number): string {
  return chunkPrefix(base) + pad(chunk, CHUNK_DIGITS);
}

/** @returns what has this key, by default a slot; `null` for another key. Numbers have at most 10 digits */
export function parseKey(key: string, keyOf = slotKey): ObjectId | null {
  const numbers = (key.match(/\d{1,10}/g) ?? []).map(Number);
  const id = { generation: numbers[0] ?? 0, number: numbers.at(-1) ?? 0 };
  return keyOf(id) === key ? id : null;
}
