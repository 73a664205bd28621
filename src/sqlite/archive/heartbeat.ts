/**
 * Shows that this server is running, so that no other takes its archive by mistake, and notices when one has: a server
 * without writes would not.
 */
import { AppError } from "../../base/error.ts";
import { createStandbyWatch } from "./announcement.ts";
import { readCatalog } from "./catalog.ts";
import type { ArchiveContext } from "./context.ts";
import { encodeJson, type Generation } from "./format.ts";
import { heartbeatKey } from "./keys.ts";
import { createRecord, type Log, seal } from "./log.ts";
import { type Heartbeat, readLog } from "./log-reader.ts";
import { HEARTBEAT_MS } from "./still.ts";

/** Consecutive looks that must miss an object before it counts as lost. */
const MISSES_BEFORE_LOSS = 3;
/** One that takes long does not delay the next: that would look as if the server had ended. */
const MAX_BEATS = 2;

export interface HeartbeatEvents {
  /** Called with the time, by the monotonic clock, until which no other server can have taken over. */
  readonly onHeld: (untilMs: number) => void;
  /** Called when the generation cannot go on: a segment was not sent, or the storage has lost objects. */
  readonly onError: (error: unknown) => void;
}

/** Writes the record of this server again, and the seal before it, after an older state of the storage was put back. */
async function recordAgain({ storage, nowMs }: ArchiveContext, own: Generation): Promise<void> {
  const { generations } = await readCatalog(storage);
  const before = [...generations.values()].findLast(({ number }) => number < own.number);
  // Another place, e.g. because a disk is not mounted.
  if (before?.archive !== own.archive) return;
  const { sealFrom } = await readLog(storage, { generation: before.number, number: 1 }, null, 0);
  await seal(storage, sealFrom, { writer: own.name, holder: own.holder }, nowMs());
  await createRecord(storage, own);
}

/** Writes the first heartbeat, then one per interval. @returns stops it when disposed of */
export async function startHeartbeat(
  archive: ArchiveContext,
  generation: Generation,
  log: Log,
  { onHeld, onError }: HeartbeatEvents,
): Promise<Disposable> {
  const { storage, problems, clock, takeoverMs } = archive;
  const { number, name: writer } = generation;
  const findInterval = createStandbyWatch(archive);
  let intervalMs = HEARTBEAT_MS;
  let sequence = 0;
  /** The last segment that a look has found. Later ones may exist although the storage was rolled back. */
  let known = 0;
  let misses = 0;
  let beats = 0;
  let looking = false;
  let timer: Timer | undefined;

  /** @param confirmed the last segment that was stored when the look began */
  async function checkForLoss(confirmed: number): Promise<void> {
    const lost = await log.findLost(known);
    misses = lost === null ? 0 : misses + 1;
    if (lost === null) known = confirmed;
    if (misses < MISSES_BEFORE_LOSS || log.isEnded()) return;
    if ((await log.findLost(0)) !== null) await recordAgain(archive, generation);
    const reason = `${lost} is missing: an older state of the storage was put back`;
    onError(new AppError("operator", reason));
  }

  async function beat(): Promise<void> {
    sequence += 1;
    const confirmed = log.stored();
    const state: Heartbeat = { generation: number, writer, confirmed, sequence, intervalMs };
    await storage.put(heartbeatKey(number), encodeJson(state));
    const startedMs = clock.monotonicMs();
    if (!(await log.isOpen())) return;
    // A standby waits at least this long before it takes over.
    onHeld(startedMs + Math.max(takeoverMs, 2 * state.intervalMs));
    const found = await findInterval();
    const isShorter = found < intervalMs;
    intervalMs = found;
    if (isShorter && !log.isEnded()) scheduleNext();
    // Looks at the same time would count one failure of the storage more than once.
    if (looking) return;
    looking = true;
    await checkForLoss(confirmed).finally(() => {
      looking = false;
    });
  }

  function scheduleNext(): void {
    clearTimeout(timer);
    timer = setTimeout(() => void next(), intervalMs);
  }

  async function next(): Promise<void> {
    scheduleNext();
    if (beats === MAX_BEATS) return;
    beats += 1;
    try {
      await beat();
      problems.clear("heartbeat");
    } catch (error) {
      if (!log.isEnded()) problems.report("heartbeat", error);
    }
    beats -= 1;
  }

  // Part of the opening: a start that needs the archive does not wait for it without end.
  await problems.retry("opening", log.isEnded, beat);
  scheduleNext();
  return { [Symbol.dispose]: () => clearTimeout(timer) };
}
