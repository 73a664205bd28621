/**
 * Generations that have begun anew, whose first base is waited for. In sync mode they acknowledge nothing before it is
 * stored and their log was looked at afterwards. So when its server is lost, whoever has proved the end of what was before
 * seals the log, looks for the base once more, and goes on from there.
 */
import { fail } from "../../../base/error.ts";
import type { ServerContext } from "../context.ts";
import { type Generation, HEARTBEAT_MS, MAX_SENDING } from "../format.ts";
import { baseKey, prefixes } from "../keys.ts";
import { areVoid, findGeneration, isPromoted, readHeartbeat, readLog } from "../read/catalog.ts";
import { createStillness, patienceMs } from "../read/still.ts";
import { seal, sealerOf } from "../write/log.ts";

export type LookAtAnew = ReturnType<typeof watchAnew>;

/** @param after number of the last generation whose end this server has proved; 0 if there was none */
export function watchAnew(options: ServerContext, after: number, first: Generation) {
  const { storage, machine, log } = options;
  let newest = first;
  const observe = createStillness(machine);
  const hasBase = async () => {
    const from = baseKey({ generation: after + 1, number: 0 });
    return (await storage.list(prefixes.bases, 1, from)).length > 0;
  };

  return async () => {
    if (await hasBase()) return { found: "a base" } as const;
    const { number: generation, commit } = newest;
    const next = await findGeneration(storage, generation + 1);
    if (next !== null) {
      newest = next;
      return { found: "a record", generation: next } as const;
    }
    const beat = await readHeartbeat(storage, generation);
    // What it has lost was never acknowledged.
    const { isSealed, sealFrom } = await readLog(storage, { generation, number: 1 });
    const mayEnd = isSealed && (await isPromoted(storage, sealFrom));
    const stillMs = observe(`${generation} ${sealFrom.number} ${isSealed} ${beat?.sequence}`);
    const isStill = stillMs >= patienceMs(options, beat?.intervalMs ?? HEARTBEAT_MS);
    // In async mode, it may have acknowledged what it has not written.
    const isSync = commit === "sync";
    if (!mayEnd && !(isStill && isSync)) {
      const advice = isStill ? ", or `user-api archive promote`, which gives up its writes" : "";
      const waitsFor = `waiting for a base of generation ${generation}${advice}: ${newest.holder} has begun it`;
      const hadBase = beat?.hasBase === true;
      return { found: "nothing", waitsFor, isFresh: isSync && !hadBase, hadBase } as const;
    }
    const number = await seal(storage, sealFrom, sealerOf(options), MAX_SENDING);
    if (await hasBase()) return { found: "a base" } as const;
    // Then none of them counts for anything, and in sync mode, none can have acknowledged anything.
    if (!(await areVoid(storage, after, generation)))
      fail("operator", `generation ${generation} has no base any more`);
    log("warn", "taking over", { holder: newest.holder });
    return { found: "the end", end: { generation, number }, hasAll: isSync } as const;
  };
}
