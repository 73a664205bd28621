/** Finds the state that a restore of an archive returns. */
import { fail } from "../../base/error.ts";
import type { ObjectStorage } from "../../domain/object-storage.ts";
import {
  basesOf,
  beginningMs,
  type Contents,
  type Lineage,
  readGeneration,
  usedPrefixes,
} from "./contents.ts";
import { LAST_KEY, parseSegmentKey, prefixes, type SegmentKey, segmentPrefix } from "./format.ts";
import {
  type ArchivedState,
  type History,
  isAtOrBefore,
  nameOf,
  readHistory,
  stateOf,
} from "./history.ts";

/** @param used the prefixes under which an archive without a base has objects */
export function withoutBase(used: readonly string[]): string {
  return `has objects in ${used.join(", ")}, but no complete base`;
}

/** A state that can be restored if its objects are not damaged. */
export interface FoundState {
  readonly state: ArchivedState;
  /** What is damaged of newer bases. */
  readonly damage: readonly string[];
  /** What should be repaired, or is not in the state. */
  readonly warnings: readonly string[];
}

/**
 * @param damage every problem that prevents the restore
 * @param beforeMs a time before it, which is named if the archive reaches back to it; `null` if there is none
 * @throws {AppError} operator
 */
export function failUnrestorable(
  damage: readonly string[],
  beforeMs: number | null,
  contents: Contents,
): never {
  const isReached = beforeMs !== null && beforeMs >= beginningMs(contents);
  const advice = isReached
    ? `: restore a state before it with --at ${new Date(beforeMs).toISOString()}`
    : "";
  return fail("operator", `the archive is damaged: ${damage.join(", and ")}${advice}`);
}

/**
 * A generation writes its record first, and it is deleted last.
 * @returns what generations after a lineage have written until then: the first segment, and all bases
 * @throws {AppError} operator if the record of one of them is missing or damaged
 */
async function findLater(
  storage: ObjectStorage,
  { bases }: Contents,
  lineage: Lineage,
  atMs: number,
): Promise<SegmentKey[]> {
  const last = lineage.at(-1)?.number ?? 0;
  const [next] = await storage.list(prefixes.segments, 1, segmentPrefix(last) + LAST_KEY);
  const segment = next === undefined ? null : parseSegmentKey(next.key);
  const written = segment === null ? bases : [segment, ...bases];
  const later = written.filter(({ generation, timeMs }) => generation > last && timeMs <= atMs);
  for (const { generation } of later) await readGeneration(storage, generation);
  return later;
}

/** @param later what the newer lineages have written, none of which has a base */
function warningsOf(damaged: History["damaged"], later: readonly SegmentKey[]): string[] {
  const skipped = [...damaged].map(
    ([base, damage]) =>
      `${base} is damaged, an older base was used, and nothing is lost: ${damage}`,
  );
  const lost = later.map(
    ({ generation, timeMs }) =>
      `what generation ${generation} has written since ${new Date(timeMs).toISOString()} is not restored, because no base has it`,
  );
  return [...skipped, ...lost];
}

/**
 * @param at a time in the past; `null` for the newest state
 * @throws {AppError} operator if the archive is empty, does not reach back to that time, or what is needed is damaged
 */
export async function findState(
  storage: ObjectStorage,
  contents: Contents,
  at: Date | null,
): Promise<FoundState> {
  const atMs = at?.getTime() ?? Number.POSITIVE_INFINITY;
  for (const [age, lineage] of contents.lineages.entries()) {
    const later = await findLater(storage, contents, lineage, atMs);
    const { state, missing, damaged } = await readHistory(storage, contents, lineage, atMs);
    const damage = [...damaged.values()];
    const isTooOld = state === null || state.timeMs < atMs;
    const isCut = missing !== null && isTooOld;
    if (state !== null && !isCut) {
      const { base, segments } = state;
      const end = segments.findIndex(
        (segment) => !isAtOrBefore(segment, base.last) && segment.timeMs > atMs,
      );
      // Nothing after that one, whatever its time: a part of the WAL needs all parts before it.
      return {
        state: end === -1 ? state : stateOf(base, segments.slice(0, end)),
        damage,
        // What is newer than the newest lineage was begun meanwhile.
        warnings: warningsOf(damaged, age === 0 ? [] : later),
      };
    }
    if (isCut) damage.push(`${nameOf(missing)} is missing`);
    const times = basesOf(contents, lineage, atMs).map(({ timeMs }) => timeMs);
    if (damage.length > 0)
      failUnrestorable(damage, state?.timeMs ?? Math.min(...times) - 1, contents);
  }
  // Bases of no lineage that was read: the record of their generation is missing or damaged.
  for (const { generation, timeMs } of contents.bases)
    if (timeMs <= atMs) await readGeneration(storage, generation);
  const beginning = beginningMs(contents);
  if (beginning === Number.POSITIVE_INFINITY) {
    const damage = contents.bases.flatMap((base) => base.damage ?? []);
    if (damage.length > 0) failUnrestorable(damage, null, contents);
    const used = await usedPrefixes(storage);
    fail("operator", `the archive ${used.length > 0 ? withoutBase(used) : "is empty"}`);
  }
  return fail("operator", `the archive begins at ${new Date(beginning).toISOString()}`);
}
