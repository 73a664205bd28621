/** Which states an archive can restore. */

import { fail } from "../../../base/error.ts";
import type { ArchivedRange } from "../../../domain/archive.ts";
import type { ObjectStorage } from "../../../domain/object-storage.ts";
import { baseKey, generationKey, logPrefix, type SegmentId } from "../keys.ts";
import {
  type Catalog,
  type History,
  isAtOrBefore,
  isUsable,
  isUsed,
  isVoid,
  NO_BASE,
  readCatalog,
  readEnd,
  readHistory,
  tryBases,
} from "./catalog.ts";
import { readHead } from "./log-reader.ts";

export interface FoundState {
  readonly history: History;
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
  const warnings: string[] = [];
  const { newest, generations } = catalog;
  // Nothing of it is needed but the base and the log.
  if (!generations.has(base.generation))
    warnings.push(`${generationKey(base.generation)} is missing or damaged`);
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
  return { history, damage, warnings: [...skipped, ...later] };
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
      loss: history.loss,
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
