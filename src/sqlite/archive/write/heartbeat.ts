/**
 * Shows that this server is running, so that no other takes its archive by mistake, and notices when one has: a server
 * without writes would not.
 */
import { AppError } from "../../../base/error.ts";
import type { ArchiveContext } from "../context.ts";
import { encodeJson, type Generation, HEARTBEAT_MS, type Heartbeat } from "../format.ts";
import { generationKey, heartbeatKey } from "../keys.ts";
import { findGeneration, orNull, readCatalog, readLog } from "../read/catalog.ts";
import { createStandbyWatch } from "./announcement.ts";
import { createRecord, type OwnLog, seal, sealerOf } from "./log.ts";

/** Consecutive looks that must miss an object before it counts as lost. */
const MISSES_BEFORE_LOSS = 3;
/** One that takes long does not delay the next: that would look as if the server had ended. */
const MAX_BEATS = 2;

/** Writes the seal before this server again, and its record, after an older state of the storage was put back. */
async function recordAgain(archive: ArchiveContext, own: Generation, ownLog: OwnLog) {
  const { storage } = archive;
  const { generations } = await readCatalog(storage);
  const before = [...generations.values()].findLast(({ number }) => number < own.number);
  if (before?.archive === own.archive) {
    const { sealFrom } = await readLog(storage, { generation: before.number, number: 1 });
    await seal(storage, sealFrom, sealerOf(archive));
    // Otherwise it may be another place, e.g. because a disk is not mounted.
  } else if ((await ownLog.findLost(1)) !== null) return;
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
  let intervalMs = HEARTBEAT_MS;
  /** The shortest one that a standby may know: it waits for two of it, or TAKEOVER_SECONDS. */
  let knownMs = HEARTBEAT_MS;
  let lookedMs = machine.monotonicMs();
  const hold = () => events.onHeld(lookedMs + Math.max(takeoverMs, 2 * knownMs));
  let hasBase = generation.parent !== null;
  let sequence = 0;
  /** The last segment that a look has found. Later ones may exist although the storage was rolled back. */
  let known = 0;
  let misses = 0;
  let beats = 0;
  let looking = false;
  let timer: Disposable | undefined;

  /** @param confirmed the last segment that was stored when the look began */
  async function checkForLoss(confirmed: number): Promise<void> {
    const lost = await ownLog.findLost(known);
    misses = lost === null ? 0 : misses + 1;
    if (lost === null) known = confirmed;
    // It is the same archive, and who starts now needs the record.
    const isDue = lost === null && sequence % 2 === 0;
    if (isDue && (await orNull(findGeneration(storage, number))) === null)
      await storage.put(generationKey(number), encodeJson(generation));
    if (misses < MISSES_BEFORE_LOSS || ownLog.isEnded()) return;
    await recordAgain(archive, generation, ownLog);
    const reason = `${lost} is missing: an older state of the storage was put back`;
    events.onError(new AppError("operator", reason));
  }

  /** @returns whether no other server has a slot of the log */
  async function show(via = storage): Promise<boolean> {
    // A server that hears nothing cannot acknowledge anything, either: others may take over.
    const isSilent = machine.monotonicMs() - lookedMs >= takeoverMs;
    if (isSilent && !(await ownLog.isOpen(via))) return false;
    sequence += 1;
    if (intervalMs < knownMs) {
      knownMs = intervalMs;
      hold();
    }
    const state = { generation: number, writer, confirmed: ownLog.stored(), sequence, intervalMs };
    // A standby may count from the moment at which it arrives.
    const startedMs = machine.monotonicMs();
    await via.put(heartbeatKey(number), encodeJson({ ...state, hasBase } satisfies Heartbeat));
    if (!(await ownLog.isOpen(via))) return false;
    if (startedMs >= lookedMs) [knownMs, lookedMs] = [state.intervalMs, startedMs];
    hold();
    return true;
  }

  async function beat(): Promise<void> {
    const confirmed = ownLog.stored();
    if (!(await show())) return;
    const found = await standbys.look();
    const isShorter = found < intervalMs;
    intervalMs = found;
    if (isShorter && !ownLog.isEnded()) {
      scheduleNext();
      // So that a standby waits no longer for a server that is lost soon.
      await show();
    }
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

  function scheduleNext(): void {
    timer?.[Symbol.dispose]();
    timer = machine.every(intervalMs, () => void next());
  }

  async function next(): Promise<void> {
    scheduleNext();
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

  if (archive.standby && !hasBase) intervalMs = await standbys.look().catch(() => HEARTBEAT_MS);
  await show(archive.opening);
  void next();
  return {
    /** @returns the standby that has announced itself; `null` if there is none */
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
    [Symbol.dispose]: () => timer?.[Symbol.dispose](),
  };
}
