/** One generation of the archive, while this server writes it: sends the WAL as segments, and knows which commits the archive has. */
import type { ObjectStorage } from "../../../domain/object-storage.ts";
import type { ArchiveContext } from "../context.ts";
import { type Base, encodeChunk, MAX_SENDING, type SegmentHeader, type Slot } from "../format.ts";
import type { SegmentId } from "../keys.ts";
import type { Progress, WalPart, WalPosition, WalReader } from "../machine.ts";
import type { Beginning } from "./generation.ts";
import { type Heartbeat, type HeartbeatEvents, startHeartbeat } from "./heartbeat.ts";
import { createLog, type Log } from "./log.ts";

/** Bytes of the WAL in memory. Beyond, they stay in the WAL, which is not checkpointed then. */
const MAX_PENDING_BYTES = 64 * 2 ** 20;

/** A clock that goes back by more was ahead, unless it is before this program: then it is wrong now. */
const MAX_BACK_MS = 1_000;
const EARLIEST_MS = Date.UTC(2026, 0);

type ReadSegment = Pick<Slot, "generation" | "number" | "timeMs">;

export interface QueuedSegment extends ReadSegment {
  readonly part: WalPart;
  readonly previous: WalPosition | null;
  readonly reached: Progress | null;
  readonly ascendsFrom: number;
}

/** The segments up to this one have everything that was committed until this time. */
interface Read {
  readonly segment: number;
  /** Ticket of the last commit counted by then. */
  readonly ticket: number;
  /** By the monotonic clock, as all but the times of segments. */
  readonly timeMs: number;
}

export interface GenerationEvents extends HeartbeatEvents {
  /** Called when the archive can restore all commits up to this ticket and until this time. */
  readonly onStored: (ticket: number, untilMs: number) => void;
  /** Called once, with its name, when another server has continued the archive. */
  readonly onSuperseded: (holder: string) => void;
}

export interface GenerationWriter {
  readonly archive: ArchiveContext;
  readonly beginning: Beginning;
  readonly events: GenerationEvents;
  readonly log: Log;
  readonly heartbeat: Heartbeat;
  readonly reader: WalReader;
  readonly queue: QueuedSegment[];
  /** Bytes that were read, and are not in the archive. */
  pendingBytes: number;
  /** Bytes of compressed segments that the archive has. */
  storedBytes: number;
  /** The last segment that was read. Before the first one, its number is 0, and its time that of what is continued. */
  lastRead: ReadSegment;
  previous: WalPosition | null;
  ascendsFrom: number;
  /** Progress of the database as of `lastRead`; older while there is more to read. */
  reached: Progress | null;
  /** Number of the first segment since the restart of the WAL; `null` if it is in an earlier generation. */
  firstOfWal: number | null;
  /** One for each segment that is not confirmed, or the last one. */
  reads: Read[];
  /** Ticket of the last commit counted when the end of the WAL was read. */
  readTicket: number;
  /** `null` if the generation has begun with a base, which is not complete. */
  newestBase: Base | null;
  /** `storedBytes` when the newest base was begun; 0 if it is of an earlier generation. */
  baseStartBytes: number;
  /** When this server began the newest base, `null` if another did; and the last one because the clock was ahead. */
  begunMs: number | null;
  clockBaseMs: number;
  /** When what has expired was deleted. */
  deletedMs: number;
}

export interface Archiving extends ArchiveContext {
  writer: GenerationWriter | null;
}

/**
 * @param opening repeats calls that fail, for the first heartbeat
 * @throws {AppError} unavailable if the storage does not take that
 */
export async function createGenerationWriter(
  archive: ArchiveContext,
  beginning: Beginning,
  events: GenerationEvents,
  opening: ObjectStorage,
): Promise<GenerationWriter> {
  const { storage, problems, database } = archive;
  const { generation, position, previous, timeMs, newest } = beginning;
  const log = createLog({
    storage,
    generation,
    retry: (attempt) => problems.retry("segments", () => log.isEnded(), attempt),
    onSuperseded: events.onSuperseded,
  });
  return {
    archive,
    beginning,
    events,
    log,
    heartbeat: await startHeartbeat(archive, generation, log, events, opening),
    reader: database.readWal(position),
    queue: [],
    pendingBytes: 0,
    storedBytes: 0,
    lastRead: { generation: generation.number, number: 0, timeMs },
    previous,
    ascendsFrom: 1,
    reached: null,
    firstOfWal: position.offset === 0 ? 1 : null,
    reads: [],
    readTicket: 0,
    newestBase: newest,
    baseStartBytes: 0,
    begunMs: null,
    clockBaseMs: Number.NEGATIVE_INFINITY,
    deletedMs: Number.NEGATIVE_INFINITY,
  };
}

/** Sends nothing more, as if the storage were unreachable. */
export function endGeneration({ log, heartbeat }: GenerationWriter): void {
  log.end();
  heartbeat[Symbol.dispose]();
}

/** @returns the time of what is written now: not before what was written earlier, unless the clock was ahead then */
export function timeOf({ archive, lastRead, newestBase }: GenerationWriter): number {
  const nowMs = archive.machine.nowMs();
  const lastMs = Math.max(lastRead.timeMs, newestBase?.timeMs ?? 0);
  const wasAhead = lastMs - nowMs > MAX_BACK_MS && nowMs >= EARLIEST_MS;
  return wasAhead ? nowMs : Math.max(lastMs, nowMs);
}

/** @throws {Error} if parts of the WAL are lost */
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
  if (reader.unreadBytes() === 0) writer.reached = current ?? writer.reached;
  const { reached, ascendsFrom } = writer;
  writer.queue.push({ ...writer.lastRead, part, previous, reached, ascendsFrom });
  writer.previous = part.end;
  writer.pendingBytes += part.bytes.length;
  return true;
}

async function send(writer: GenerationWriter, queued: QueuedSegment): Promise<void> {
  const { archive, beginning, log } = writer;
  const { part, previous, reached: progress, ...id } = queued;
  const { bytes, ...place } = part;
  const { body, chunk } = await encodeChunk(bytes, archive.machine);
  const { name } = beginning.generation;
  const slot = { kind: "segment", ...id, writer: name, confirmed: log.stored() } as const;
  const header: SegmentHeader = { ...slot, ...place, previous, progress, ...chunk };
  // Otherwise another generation may have begun, which counts its own segments.
  if (!(await log.append(header, body))) return;
  writer.pendingBytes -= bytes.length;
  writer.storedBytes += body.length;
  sendQueued(writer);
  if (writer.readTicket < archive.lastTicket) advance(writer);
  else confirm(writer);
}

/** @param number of a segment */
function maySend({ log }: GenerationWriter, number: number): boolean {
  return !log.isEnded() && number <= log.stored() + MAX_SENDING;
}

function sendQueued(writer: GenerationWriter): void {
  const { log, queue, events } = writer;
  for (let [next] = queue; next !== undefined && maySend(writer, next.number); [next] = queue) {
    queue.shift();
    send(writer, next).catch((error) => {
      if (!log.isEnded()) events.onError(error);
    });
  }
}

/**
 * Reads the WAL to its end, and sends what was read. It does not wait.
 * @returns false if the memory for it is used up, or the generation has ended
 * @throws {Error} if parts of the WAL are lost
 */
export function readAll(writer: GenerationWriter): boolean {
  const { log } = writer;
  let isRead = false;
  while (!isRead && !log.isEnded() && writer.pendingBytes < MAX_PENDING_BYTES)
    isRead = !readPart(writer);
  sendQueued(writer);
  return isRead && !log.isEnded();
}

function confirm(writer: GenerationWriter): void {
  const { log, events, reads, newestBase } = writer;
  if (log.isEnded()) return;
  const stored = log.stored();
  const last = reads.findLast(({ segment }) => segment <= stored);
  if (last === undefined) return;
  writer.reads = reads.filter(({ segment }) => segment > stored);
  // Nothing can be restored without a base.
  if (newestBase !== null) events.onStored(last.ticket, last.timeMs);
}

/**
 * Reads what is new, remembers its commits, sends it, and confirms what is stored. It does not wait.
 * @throws {Error} if parts of the WAL are lost
 */
export function advance(writer: GenerationWriter): void {
  const { archive, log, queue, reader, reads, lastRead } = writer;
  const timeMs = archive.machine.monotonicMs();
  // Not before there is room, so that all writes until then share a segment.
  const hasRoom = queue.length === 0 && maySend(writer, lastRead.number + 1);
  const isRead = hasRoom ? readAll(writer) : reader.unreadBytes() === 0;
  if (log.isEnded()) return;
  if (isRead) {
    writer.readTicket = archive.lastTicket;
    const { number } = writer.lastRead;
    if (reads.at(-1)?.segment === number) reads.pop();
    reads.push({ segment: number, ticket: writer.readTicket, timeMs });
  }
  confirm(writer);
}

export function lastStored({ log, beginning, lastRead }: GenerationWriter): SegmentId {
  const number = log.stored();
  return number === 0 ? beginning.last : { generation: lastRead.generation, number };
}

export function bytesBehind({ pendingBytes, reader }: GenerationWriter): number {
  return pendingBytes + reader.unreadBytes();
}

/** @returns whether the archive can restore all commits */
export function isComplete(writer: GenerationWriter): boolean {
  return writer.newestBase !== null && bytesBehind(writer) === 0;
}
