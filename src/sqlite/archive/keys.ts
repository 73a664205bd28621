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

export function isAtOrBefore(segment: ObjectId, other: ObjectId): boolean {
  if (segment.generation !== other.generation) return segment.generation < other.generation;
  return segment.number <= other.number;
}

export function isSameSegment(one: ObjectId | null, other: ObjectId | null): boolean {
  return one?.generation === other?.generation && one?.number === other?.number;
}

const BLOCK_DIGITS = 3;
export const SLOTS_PER_BLOCK = 10 ** BLOCK_DIGITS;

const pad = (number: number, digits: number) => `${number}`.padStart(digits, "0");
const padGeneration = (generation: number) => pad(generation, 8);
const padNumber = (number: number) => pad(number, 10);

export const prefixes = {
  generations: "generations/",
  log: "log/",
  heartbeats: "heartbeats/",
  bases: "bases/",
  chunks: "chunks/",
};

export const generationKey = (number: number) => prefixes.generations + padGeneration(number);
export const heartbeatKey = (generation: number) => prefixes.heartbeats + padGeneration(generation);

export const logPrefix = (generation: number) => `${prefixes.log}${padGeneration(generation)}/`;
export const blockPrefix = ({ generation, number }: ObjectId) =>
  `${logPrefix(generation)}${padNumber(number).slice(0, -BLOCK_DIGITS)}/`;
export const slotKey = (id: ObjectId) => blockPrefix(id) + padNumber(id.number);

const nameOf = (base: ObjectId) => `${padGeneration(base.generation)}-${padNumber(base.number)}`;
export const baseKey = (base: ObjectId) => prefixes.bases + nameOf(base);
export const chunkPrefix = (base: ObjectId) => `${prefixes.chunks}${nameOf(base)}/`;
export const chunkKey = (base: ObjectId, chunk: number) => chunkPrefix(base) + pad(chunk, 6);

/** @returns what has this key, by default a slot; `null` for another key. Numbers have at most 10 digits */
export function parseKey(key: string, keyOf = slotKey): ObjectId | null {
  const numbers = (key.match(/\d{1,10}/g) ?? []).map(Number);
  const id = { generation: numbers[0] ?? 0, number: numbers.at(-1) ?? 0 };
  return keyOf(id) === key ? id : null;
}
