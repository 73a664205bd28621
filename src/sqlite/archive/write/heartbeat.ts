/** Keeps other servers from taking the archive by mistake, and notices when one has: a server without writes would not. */
import { AppError } from "../../../base/error.ts";
import type { ObjectStorage } from "../../../domain/object-storage.ts";
import type { ArchiveContext } from "../context.ts";
import { encodeJson, type Generation, HEARTBEAT_MS, type Heartbeat } from "../format.ts";
import { generationKey, heartbeatKey, slotKey } from "../keys.ts";
import { findGeneration, orNull, readCatalog, readLog } from "../read/catalog.ts";
import { createStandbyWatch } from "./announcement.ts";
import { createRecord, type OwnLog, seal, sealerOf } from "./log.ts";

/** Heartbeats of a server with --standby while another one waits before it takes over. */
const BEATS_PER_TAKEOVER = 4;
/** Consecutive looks that must miss an object before it counts as lost. */
const MISSES_BEFORE_LOSS = 3;
/** One that takes long does not delay the next: that would look as if the server had ended. */
const MAX_BEATS = 2;

async function isMissing(storage: ObjectStorage, key: string): Promise<boolean> {
  return (await storage.get(key, 1)) === null;
}

/** Writes the seal before this server again, and its record, after an older state of the storage was put back. */
async function recordAgain(archive: ArchiveContext, own: Generation) {
  const { storage } = archive;
  const { generations } = await readCatalog(storage);
  const before = [...generations.values()].findLast(({ number }) => number < own.number);
  if (before?.archive === own.archive) {
    const { sealFrom } = await readLog(storage, { generation: before.number, number: 1 });
    await seal(storage, sealFrom, sealerOf(archive));
    // Otherwise it may be another place, e.g. because a disk is not mounted.
  } else if (await isMissing(storage, slotKey({ generation: own.number, number: 1 }))) return;
  await createRecord(storage, own);
}

/** Writes the first heartbeat, then one per interval, until it is disposed of. */
export async function startHeartbeat(
  archive: ArchiveContext,
  generation: Generation,
  ownLog: OwnLog,
) {
  const { storage, problems, machine, takeoverMs, events } = archive;
  const { number, name: writer } = generation;
  const standbys = createStandbyWatch(archive);
  const fastestMs = archive.standby ? Math.ceil(takeoverMs / BEATS_PER_TAKEOVER) : HEARTBEAT_MS;
  const intervalMs = Math.min(HEARTBEAT_MS, fastestMs);
  let lookedMs = machine.monotonicMs();
  let hasBase = generation.parent !== null;
  let sequence = 0;
  /** The record, or the last segment that a look has found: later ones may exist although the storage was rolled back. */
  let known = generationKey(number);
  let misses = 0;
  let beats = 0;
  let looking = false;

  /** @param confirmed the last segment that was stored when the look began */
  async function checkForLoss(confirmed: number): Promise<void> {
    const isLost = await isMissing(storage, known);
    misses = isLost ? misses + 1 : 0;
    // It is the same archive, and who starts now needs the record.
    const isDue = !isLost && sequence % 2 === 0;
    if (isDue && (await orNull(findGeneration(storage, number))) === null)
      await storage.put(generationKey(number), encodeJson(generation));
    if (!isLost && confirmed > 0) known = slotKey({ generation: number, number: confirmed });
    if (misses < MISSES_BEFORE_LOSS || ownLog.isEnded()) return;
    await recordAgain(archive, generation);
    const reason = `${known} is missing: an older state of the storage was put back`;
    events.onError(new AppError("operator", reason));
  }

  async function show(via = storage): Promise<boolean> {
    // A server that hears nothing cannot acknowledge anything, either: others may take over.
    const isSilent = machine.monotonicMs() - lookedMs >= takeoverMs;
    if (isSilent && !(await ownLog.isOpen(via))) return false;
    sequence += 1;
    const state = { generation: number, writer, confirmed: ownLog.stored(), sequence, intervalMs };
    // A standby may count from the moment at which it arrives.
    const startedMs = machine.monotonicMs();
    await via.put(heartbeatKey(number), encodeJson({ ...state, hasBase } satisfies Heartbeat));
    if (!(await ownLog.isOpen(via))) return false;
    lookedMs = Math.max(lookedMs, startedMs);
    events.onHeld(lookedMs + Math.max(takeoverMs, 2 * intervalMs));
    return true;
  }

  async function beat(): Promise<void> {
    const confirmed = ownLog.stored();
    if (!(await show())) return;
    await standbys.look();
    // Looks at the same time would count one failure of the storage more than once.
    if (looking) return;
    looking = true;
    try {
      await checkForLoss(confirmed);
      const lacks = standbys.current()?.lacks ?? null;
      if (lacks !== null) await events.onLack(lacks);
    } finally {
      looking = false;
    }
  }

  async function next(): Promise<void> {
    if (beats === MAX_BEATS) return;
    beats += 1;
    try {
      await beat();
      problems.clear("heartbeat");
    } catch (error) {
      if (!ownLog.isEnded()) problems.report("heartbeat", error);
    }
    beats -= 1;
  }

  await show(archive.opening);
  const timer = machine.every(intervalMs, () => void next());
  void next();
  return {
    standby: standbys.current,
    /**
     * Says that the archive has a base. Nothing may be acknowledged before: a generation whose heartbeat denies it counts
     * for nothing if its server is lost.
     * @returns whether no other server has a slot of the log, as of a look after that
     */
    noteBase(): Promise<boolean> {
      hasBase = true;
      return show();
    },
    [Symbol.dispose]: timer[Symbol.dispose],
  };
}
