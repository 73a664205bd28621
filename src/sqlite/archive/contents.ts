/** Finds out what an archive has besides segments: its generations and its bases. */
import type { ObjectStorage } from "../../domain/object-storage.ts";
import {
  type Base,
  baseKey,
  damageOf,
  decodeBase,
  decodeGeneration,
  failDamaged,
  type Generation,
  generationKey,
  parseBaseKey,
  parseGenerationKey,
  prefixes,
  type SegmentId,
} from "./format.ts";

/** A generation and the ones that it continues, oldest first. Each but the last ends where the next one begins. */
export type Lineage = readonly Generation[];

export interface StoredBase extends Base {
  /** What of it is damaged; `null` if nothing is known to be. */
  readonly damage: string | null;
}

/** What an archive has, without its segments. */
export interface Contents {
  /** Newest first. */
  readonly lineages: readonly Lineage[];
  /** All that are complete, oldest first. */
  readonly bases: readonly StoredBase[];
}

async function readBody(
  storage: ObjectStorage,
  key: string,
  maxBytes?: number,
): Promise<Uint8Array> {
  const object = await storage.get(key, maxBytes);
  return object?.body ?? failDamaged(key, "is missing");
}

/** @returns the numbers of all generations */
async function listGenerations(storage: ObjectStorage): Promise<number[]> {
  const objects = await storage.list(prefixes.generations);
  return objects.map(({ key }) => parseGenerationKey(key)).filter((number) => number !== null);
}

async function listBases(storage: ObjectStorage): Promise<SegmentId[]> {
  const objects = await storage.list(prefixes.bases);
  return objects.map(({ key }) => parseBaseKey(key)).filter((id) => id !== null);
}

/** @returns the number of the newest generation; 0 if no server has written to the archive */
export async function newestNumber(storage: ObjectStorage): Promise<number> {
  return Math.max(0, ...(await listGenerations(storage)));
}

/** @throws {AppError} operator if it is missing or damaged */
export async function readGeneration(storage: ObjectStorage, number: number): Promise<Generation> {
  return decodeGeneration(number, await readBody(storage, generationKey(number), 2 ** 16));
}

/**
 * @returns those that are not damaged
 * @throws {AppError} operator if the newest one is damaged, so that nobody knows whose it is
 */
async function readGenerations(storage: ObjectStorage): Promise<Map<number, Generation>> {
  const numbers = await listGenerations(storage);
  const generations = new Map<number, Generation>();
  for (const number of numbers) {
    try {
      generations.set(number, await readGeneration(storage, number));
    } catch (error) {
      if (damageOf(error) === null || number === Math.max(...numbers)) throw error;
    }
  }
  return generations;
}

/** @returns the lineages, newest first. Segments after the end that the next generation saw do not belong to it */
async function readLineages(storage: ObjectStorage): Promise<Lineage[]> {
  const generations = await readGenerations(storage);
  const lineages: Lineage[] = [];
  let oldest = Number.POSITIVE_INFINITY;
  for (const newest of [...generations.keys()].sort((a, b) => b - a)) {
    // What is between the generations of a lineage was abandoned.
    if (newest >= oldest) continue;
    const lineage: Generation[] = [];
    let current = generations.get(newest);
    while (current !== undefined) {
      lineage.unshift(current);
      current = current.parent === null ? undefined : generations.get(current.parent.generation);
    }
    lineages.push(lineage);
    oldest = lineage[0]?.number ?? 0;
  }
  return lineages;
}

/** @returns whether the archive has anything that can be restored */
export async function hasBase(storage: ObjectStorage): Promise<boolean> {
  return (await listBases(storage)).length > 0;
}

/** @returns the prefixes under which the archive has objects */
export async function usedPrefixes(storage: Pick<ObjectStorage, "list">): Promise<string[]> {
  const used: string[] = [];
  for (const prefix of Object.values(prefixes))
    if ((await storage.list(prefix, 1)).length > 0) used.push(prefix);
  return used;
}

async function readBase(storage: ObjectStorage, id: SegmentId): Promise<StoredBase> {
  try {
    return { ...decodeBase(id, await readBody(storage, baseKey(id))), damage: null };
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

export async function readContents(storage: ObjectStorage): Promise<Contents> {
  const lineages = await readLineages(storage);
  const bases: StoredBase[] = [];
  for (const id of await listBases(storage)) bases.push(await readBase(storage, id));
  return { lineages, bases };
}

/** @returns the contents, one base of which was found to be damaged */
export function withDamage(
  { lineages, bases }: Contents,
  base: StoredBase,
  damage: string,
): Contents {
  return { lineages, bases: bases.map((each) => (each === base ? { ...each, damage } : each)) };
}

/** @returns whether a segment is in the history of a lineage, and not after the end of its generation */
function isPartOf({ generation, number }: SegmentId, lineage: Lineage): boolean {
  const at = lineage.findIndex((each) => each.number === generation);
  if (at === -1) return false;
  return number <= (lineage[at + 1]?.parent?.number ?? Number.POSITIVE_INFINITY);
}

/** @returns the bases of a lineage that were complete at this time, newest first */
export function basesOf(
  { bases }: Contents,
  lineage: Lineage,
  atMs = Number.POSITIVE_INFINITY,
): StoredBase[] {
  // The first segment of one may not exist, when nothing was in the WAL: then the lineage may go on before that one.
  return bases.filter(({ last, timeMs }) => isPartOf(last, lineage) && timeMs <= atMs).reverse();
}

/** @returns since when a state can be restored; infinite if none can */
export function beginningMs(contents: Contents): number {
  const all = contents.lineages.flatMap((lineage) => basesOf(contents, lineage));
  const sound = all.filter(({ damage }) => damage === null);
  return Math.min(...sound.map(({ timeMs }) => timeMs));
}
