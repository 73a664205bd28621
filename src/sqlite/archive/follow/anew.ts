/**
 * Generations that have begun anew, whose first base is waited for. In sync mode they acknowledge nothing before it is
 * stored and their log was looked at afterwards. So when its server is lost, whoever has proved the end of what was before
 * seals the log, looks for the base once more, and goes on from there.
 */

import { fail } from "../../../base/error.ts";
import type { ArchiveSettings } from "../../../domain/archive.ts";
import type { ServerContext } from "../context.ts";
import type { Generation } from "../format.ts";
import { HEARTBEAT_MS, MAX_SENDING } from "../format.ts";
import { baseKey, prefixes, type SegmentId } from "../keys.ts";
import { areVoid, findGeneration, isPromoted, readHeartbeat, readLog } from "../read/catalog.ts";
import { createStillness, patienceMs } from "../read/still.ts";
import { seal } from "../write/log.ts";

export type AnewOptions = Pick<ServerContext, "storage" | "files" | "machine" | "log"> &
  Pick<ArchiveSettings, "takeoverMs" | "wasSuperseded">;

export type AnewLook =
  | { readonly found: "a base" }
  /** A server has begun one after them. */
  | { readonly found: "a record"; readonly generation: Generation }
  | {
      readonly found: "nothing";
      readonly waitsFor: string;
      readonly isFresh: boolean;
      readonly hadBase: boolean;
    }
  /**
   * None of them counts for anything. This is the end of the log of the last one, which is sealed, and whether none can have
   * acknowledged anything.
   */
  | { readonly found: "the end"; readonly end: SegmentId; readonly hasAll: boolean };

/**
 * @param after number of the last generation whose end this server has proved; 0 if there was none
 * @param first a later one, without a base
 * @returns looks at the newest one. It throws unavailable, or operator for what is missing or damaged
 */
export function watchAnew(options: AnewOptions, after: number, first: Generation) {
  const { storage, files, machine, log } = options;
  let newest = first;
  let stillMsOf = createStillness(machine);
  let isTakingOver = false;
  const hasBase = async () => {
    const from = baseKey({ generation: after + 1, number: 0 });
    return (await storage.list(prefixes.bases, 1, from)).length > 0;
  };

  return async (): Promise<AnewLook> => {
    if (await hasBase()) return { found: "a base" };
    const { number: generation, commit } = newest;
    const next = await findGeneration(storage, generation + 1);
    if (next !== null) {
      newest = next;
      stillMsOf = createStillness(machine);
      isTakingOver = false;
      return { found: "a record", generation: next };
    }
    const beat = await readHeartbeat(storage, generation);
    // What it has lost was never acknowledged.
    const { isSealed, sealFrom } = await readLog(storage, { generation, number: 1 }, null, 0);
    const mayEnd = isSealed && (await isPromoted(storage, sealFrom));
    const stillMs = stillMsOf(`${sealFrom.number} ${isSealed} ${beat?.sequence}`);
    if (stillMs === 0) isTakingOver = false;
    const isStill = stillMs >= patienceMs(options, beat?.intervalMs ?? HEARTBEAT_MS);
    // In async mode, it may have acknowledged what it has not written.
    const isSync = commit === "sync";
    if (!mayEnd && !isTakingOver && !(isStill && isSync)) {
      const advice = isStill ? ", or `user-api archive promote`, which gives up its writes" : "";
      const waitsFor = `waiting for a base of generation ${generation}${advice}: ${newest.holder} has begun it`;
      const hadBase = beat !== null && beat.hasBase !== false;
      return { found: "nothing", waitsFor, isFresh: isSync && !hadBase, hadBase };
    }
    if (!isTakingOver) log("warn", "taking over", { holder: newest.holder });
    isTakingOver = true;
    const sealer = { writer: machine.newId(), holder: files.holder };
    const number = await seal(storage, sealFrom, sealer, machine.nowMs(), MAX_SENDING);
    if (await hasBase()) return { found: "a base" };
    if (await areVoid(storage, after, generation))
      return { found: "the end", end: { generation, number }, hasAll: isSync };
    return fail("operator", `generation ${generation} has no base any more`);
  };
}
