/** One generation of the archive, while this server writes it: sends the WAL as segments, and knows which commits the archive has. */
import { AppError, messageOf } from "../../../base/error.ts";
import type { ArchiveContext } from "../context.ts";
import { encodeChunk, MAX_SENDING, type SegmentHeader } from "../format.ts";
import type { Progress, WalPart } from "../machine.ts";
import type { Beginning } from "./generation.ts";
import { startHeartbeat } from "./heartbeat.ts";
import { createOwnLog } from "./log.ts";

/** Bytes of the WAL in memory. Beyond, they stay in the WAL, which is not checkpointed then. */
const MAX_PENDING_BYTES = 64 * 2 ** 20;

/** A clock that goes back by more was ahead, unless it is before this program: then it is wrong now. */
const MAX_BACK_MS = 1_000;
const EARLIEST_MS = Date.UTC(2026, 0);

const CLOSE_TIMEOUT_MS = 5_000;
/** How long it waits for other processes, so that the next start can prove that it continues the archive. */
const OTHERS_TIMEOUT_MS = 500;
const POLL_MS = 20;

/** The archive is complete, but only the WAL says so, which the last process that closes the database deletes. */
const IN_USE =
  "another process uses the database: if that ends before the next start, all of it is copied again";

type Queued = "generation" | "number" | "timeMs" | "ascendsFrom" | "previous" | "progress";
type QueuedSegment = Pick<SegmentHeader, Queued> & { readonly part: WalPart };

export type GenerationWriter = Awaited<ReturnType<typeof createGenerationWriter>>;

export type Archiving = ArchiveContext & { writer: GenerationWriter | null };

/** @throws {AppError} unavailable if the storage does not take the first heartbeat */
export async function createGenerationWriter(archive: ArchiveContext, beginning: Beginning) {
  const { generation, position, previous, timeMs, newest } = beginning;
  const ownLog = createOwnLog(archive, generation);
  return {
    archive,
    beginning,
    ownLog,
    heartbeat: await startHeartbeat(archive, generation, ownLog),
    reader: archive.database.readWal(position),
    queue: [] as QueuedSegment[],
    pendingBytes: 0,
    storedBytes: 0,
    /** The last segment that was read. Before the first one, its number is 0, and its time that of what is continued. */
    lastRead: { generation: generation.number, number: 0, timeMs },
    previous,
    ascendsFrom: 1,
    /** Progress of the database as of `lastRead`; older while there is more to read. */
    progress: null as Progress | null,
    /** Number of the first segment since the restart of the WAL; `null` if it is in an earlier generation. */
    firstOfWal: position.offset === 0 ? 1 : null,
    /**
     * The segments up to this one have everything that was committed until this time, by the monotonic clock; the ticket is
     * that of the last commit counted by then. One for each segment that is not confirmed, or the last one.
     */
    reads: [] as { segment: number; ticket: number; timeMs: number }[],
    readTicket: 0,
    /** `null` if the generation has begun with a base, which is not complete. */
    newestBase: newest,
    /** `storedBytes` when the newest base was begun; 0 if it is of an earlier generation. */
    baseStartBytes: 0,
    /** When this server began the newest base, `null` if another did; and the last one because the clock was ahead. */
    begunMs: null as number | null,
    clockBaseMs: Number.NEGATIVE_INFINITY,
    deletedMs: Number.NEGATIVE_INFINITY,
  };
}

/** Sends nothing more, as if the storage were unreachable. */
export function endGeneration({ ownLog, heartbeat }: GenerationWriter): void {
  ownLog.end();
  heartbeat[Symbol.dispose]();
}

/** @returns the time of what is written now: not before what was written earlier, unless the clock was ahead then */
export function timeOf({ archive, lastRead, newestBase }: GenerationWriter): number {
  const nowMs = archive.machine.nowMs();
  const lastMs = Math.max(lastRead.timeMs, newestBase?.timeMs ?? 0);
  const wasAhead = lastMs - nowMs > MAX_BACK_MS && nowMs >= EARLIEST_MS;
  return wasAhead ? nowMs : Math.max(lastMs, nowMs);
}

function readPart(writer: GenerationWriter): boolean {
  const { archive, reader, lastRead, previous } = writer;
  const part = reader.read();
  if (part === null) return false;
  const number = lastRead.number + 1;
  if (part.offset === 0) writer.firstOfWal = number;
  const timeMs = timeOf(writer);
  if (timeMs < lastRead.timeMs) {
    writer.ascendsFrom = number;
    archive.log("warn", "clock was ahead", { until: new Date(lastRead.timeMs).toISOString() });
  }
  writer.lastRead = { ...lastRead, number, timeMs };
  const current = archive.progress.read();
  // Otherwise it may be that of a commit that was not read. Another part follows then.
  if (reader.unreadBytes() === 0) writer.progress = current ?? writer.progress;
  const { progress, ascendsFrom } = writer;
  writer.queue.push({ ...writer.lastRead, part, previous, progress, ascendsFrom });
  writer.previous = part.end;
  writer.pendingBytes += part.bytes.length;
  return true;
}

async function send(writer: GenerationWriter, queued: QueuedSegment): Promise<void> {
  const { archive, beginning, ownLog } = writer;
  const { part, ...segment } = queued;
  const { bytes, ...place } = part;
  const { body, chunk } = await encodeChunk(bytes, archive.machine);
  const slot = { writer: beginning.generation.name, confirmed: ownLog.stored() };
  // Otherwise another generation may have begun, which counts its own segments.
  if (!(await ownLog.append({ kind: "segment", ...segment, ...slot, ...place, ...chunk }, body)))
    return;
  writer.pendingBytes -= bytes.length;
  writer.storedBytes += body.length;
  sendQueued(writer);
  if (writer.readTicket < archive.lastTicket) advance(writer);
  else confirm(writer);
}

function maySend({ ownLog }: GenerationWriter, number: number): boolean {
  return !ownLog.isEnded() && number <= ownLog.stored() + MAX_SENDING;
}

function sendQueued(writer: GenerationWriter): void {
  const { archive, ownLog, queue } = writer;
  for (let [next] = queue; next !== undefined && maySend(writer, next.number); [next] = queue) {
    queue.shift();
    send(writer, next).catch((error) => {
      if (!ownLog.isEnded()) archive.events.onError(error);
    });
  }
}

/** @returns false if the memory is used up, or the generation has ended. @throws {Error} if parts of the WAL are lost */
export function readAll(writer: GenerationWriter): boolean {
  const { ownLog } = writer;
  let isRead = false;
  while (!isRead && !ownLog.isEnded() && writer.pendingBytes < MAX_PENDING_BYTES)
    isRead = !readPart(writer);
  sendQueued(writer);
  return isRead && !ownLog.isEnded();
}

function confirm(writer: GenerationWriter): void {
  const { archive, ownLog, reads, newestBase } = writer;
  if (ownLog.isEnded()) return;
  const stored = ownLog.stored();
  const last = reads.findLast(({ segment }) => segment <= stored);
  if (last === undefined) return;
  writer.reads = reads.filter(({ segment }) => segment > stored);
  // Nothing can be restored without a base.
  if (newestBase === null) return;
  archive.completeUntilMs = last.timeMs;
  archive.onConfirmed(last.ticket);
}

/** Reads and sends what is new, and confirms what is stored. It does not wait. @throws as {@link readAll} */
export function advance(writer: GenerationWriter): void {
  const { archive, ownLog, queue, reader, reads, lastRead } = writer;
  const timeMs = archive.machine.monotonicMs();
  // Not before there is room, so that all writes until then share a segment.
  const hasRoom = queue.length === 0 && maySend(writer, lastRead.number + 1);
  const isRead = hasRoom ? readAll(writer) : reader.unreadBytes() === 0;
  if (ownLog.isEnded()) return;
  if (isRead) {
    writer.readTicket = archive.lastTicket;
    const { number } = writer.lastRead;
    if (reads.at(-1)?.segment === number) reads.pop();
    reads.push({ segment: number, ticket: writer.readTicket, timeMs });
  }
  confirm(writer);
}

export function bytesBehind({ pendingBytes, reader }: GenerationWriter): number {
  return pendingBytes + reader.unreadBytes();
}

export function isComplete(writer: GenerationWriter): boolean {
  return writer.newestBase !== null && bytesBehind(writer) === 0;
}

/** The next start can continue from here then, also as a standby. @returns whether the archive has all of the WAL */
export function noteEnd(writer: GenerationWriter): boolean {
  const { archive, ownLog, beginning, lastRead } = writer;
  const { walPin, files } = archive;
  const isRead = () => isComplete(writer) || (readAll(writer) && isComplete(writer));
  return walPin.complete(isRead, () => {
    const marker = files.readMarker();
    if (marker === null) return;
    const number = ownLog.stored();
    const last = number === 0 ? beginning.last : { generation: lastRead.generation, number };
    files.writeMarker({ ...marker, complete: { ...last, file: files.state() }, restored: null });
  });
}

/** Sends the rest, until the archive has all of the database. @returns why that was not noted; `null` if it was */
async function finish(archive: Archiving): Promise<string | null> {
  const { machine } = archive;
  let deadlineMs = machine.monotonicMs() + CLOSE_TIMEOUT_MS;
  let hasAll = false;
  let isNoted = false;
  while (machine.monotonicMs() < deadlineMs) {
    const { writer, isStarted } = archive;
    if (writer === null && (!isStarted || archive.problem() !== null)) break;
    archive.guard(() => {
      if (writer === null) return;
      advance(writer);
      if (!isComplete(writer)) return;
      if (!hasAll) deadlineMs = Math.min(deadlineMs, machine.monotonicMs() + OTHERS_TIMEOUT_MS);
      hasAll = true;
      isNoted = noteEnd(writer);
    });
    if (isNoted) return null;
    await machine.sleep(POLL_MS);
  }
  return hasAll ? IN_USE : (archive.problem() ?? "a base is being written");
}

/** Brings the archive up to date if the storage responds in time. */
export async function close(archive: Archiving): Promise<void> {
  const { log, isStarted, machine } = archive;
  const reason = await finish(archive);
  const { writer } = archive;
  if (reason !== null && isStarted && !archive.isOver())
    log("warn", "archive not complete", { reason });
  if (writer !== null && reason === null) {
    // So that the next start need not wait.
    const closing = writer.ownLog.close(machine.nowMs());
    await Promise.race([closing, machine.sleep(CLOSE_TIMEOUT_MS / 2)]).catch((error) => {
      log("warn", "archive not closed", { reason: messageOf(error) });
    });
  }
  archive.ending.abort(new AppError("unavailable", "the archive was closed"));
  if (archive.writer !== null) endGeneration(archive.writer);
  archive.progress[Symbol.dispose]();
  archive.walPin[Symbol.dispose]();
}
