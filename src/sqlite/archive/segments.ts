/** Sends the WAL to the archive, as segments of one generation, and knows which commits the archive has. */
import type { ArchiveContext } from "./context.ts";
import { encodeChunk, type SegmentHeader, type SegmentId } from "./format.ts";
import type { Beginning } from "./generation.ts";
import { type Log, MAX_SENDING } from "./log.ts";
import type { Progress } from "./progress.ts";
import { createWalReader, type WalPart, type WalPosition, type WalReader } from "./wal-reader.ts";

/** Bytes of the WAL in memory. Beyond, they stay in the WAL, which is not checkpointed then. */
const MAX_PENDING_BYTES = 64 * 2 ** 20;

/** A segment that was read. */
interface Segment extends SegmentId {
  /** Every commit in it was made at or before this time. */
  readonly timeMs: number;
}

interface Queued extends Segment {
  readonly part: WalPart;
  readonly previous: WalPosition | null;
  readonly reached: Progress | null;
}

/** The segments up to this one have everything that was committed until this time. */
interface Read {
  readonly segment: number;
  /** That of the last commit that was counted by then. */
  readonly ticket: number;
  readonly timeMs: number;
}

export interface SegmentEvents {
  /** Called when the archive has all commits up to this ticket and until this time, without the base that they need. */
  readonly onStored: (ticket: number, untilMs: number) => void;
  readonly onError: (error: unknown) => void;
}

export interface SegmentWriter {
  readonly archive: ArchiveContext;
  readonly beginning: Beginning;
  readonly log: Log;
  readonly events: SegmentEvents;
  readonly reader: WalReader;
  readonly queue: Queued[];
  /** Bytes that were read, and are not in the archive. */
  pendingBytes: number;
  /** Bytes of compressed segments that the archive has. */
  storedBytes: number;
  /** The last segment that was read. Before the first one, its number is 0, and its time that of what is continued. */
  lastRead: Segment;
  /** Where that segment ends. */
  previous: WalPosition | null;
  /** That of what was read; less while there is more to read. */
  reached: Progress | null;
  /** Number of the first segment since the restart of the WAL; `null` if it is in an earlier generation. */
  firstOfWal: number | null;
  /** One for each segment that is not confirmed, or the last one. */
  reads: Read[];
  /** That of the last commit that was counted when the end of the WAL was read. */
  readTicket: number;
}

export function createSegmentWriter(
  archive: ArchiveContext,
  beginning: Beginning,
  log: Log,
  events: SegmentEvents,
): SegmentWriter {
  const { generation, position, previous, timeMs } = beginning;
  return {
    archive,
    beginning,
    log,
    events,
    reader: createWalReader(archive.files, position),
    queue: [],
    pendingBytes: 0,
    storedBytes: 0,
    lastRead: { generation: generation.number, number: 0, timeMs },
    previous,
    reached: null,
    firstOfWal: position.offset === 0 ? 1 : null,
    reads: [],
    readTicket: 0,
  };
}

/** @throws {Error} if parts of the WAL are lost */
function readPart(segments: SegmentWriter): boolean {
  const { archive, reader, lastRead, previous } = segments;
  const part = reader.read();
  if (part === null) return false;
  const number = lastRead.number + 1;
  if (part.offset === 0) segments.firstOfWal = number;
  // Never earlier than the previous one, also if the clock goes back.
  segments.lastRead = { ...lastRead, number, timeMs: Math.max(lastRead.timeMs, archive.nowMs()) };
  const current = archive.progress.read();
  // Otherwise it may be that of a commit that was not read. Another part follows then.
  if (reader.unreadBytes() === 0) segments.reached = current ?? segments.reached;
  segments.queue.push({ ...segments.lastRead, part, previous, reached: segments.reached });
  segments.previous = part.end;
  segments.pendingBytes += part.bytes.length;
  return true;
}

async function send(segments: SegmentWriter, queued: Queued): Promise<void> {
  const { archive, beginning, log } = segments;
  const { part, previous, reached: progress, ...id } = queued;
  const { bytes, ...place } = part;
  const { body, chunk } = await encodeChunk(bytes);
  const { name: writer } = beginning.generation;
  const slot = { kind: "segment", ...id, writer, confirmed: log.stored() } as const;
  const header: SegmentHeader = { ...slot, ...place, previous, progress, ...chunk };
  // Otherwise another generation may have begun, which counts its own segments.
  if (!(await log.append(header, body))) return;
  segments.pendingBytes -= bytes.length;
  segments.storedBytes += body.length;
  sendQueued(segments);
  if (segments.readTicket < archive.lastTicket) advance(segments);
  else confirm(segments);
}

/** @param number of a segment */
function maySend({ log }: SegmentWriter, number: number): boolean {
  return !log.isEnded() && number <= log.stored() + MAX_SENDING;
}

function sendQueued(segments: SegmentWriter): void {
  const { log, queue, events } = segments;
  for (let [next] = queue; next !== undefined && maySend(segments, next.number); [next] = queue) {
    queue.shift();
    send(segments, next).catch((error) => {
      if (!log.isEnded()) events.onError(error);
    });
  }
}

/**
 * Reads the WAL to its end, and sends what was read. It does not wait.
 * @returns false if the memory for it is used up, or the generation has ended
 * @throws {Error} if parts of the WAL are lost
 */
export function readAll(segments: SegmentWriter): boolean {
  const { log } = segments;
  let isRead = false;
  while (!isRead && !log.isEnded() && segments.pendingBytes < MAX_PENDING_BYTES)
    isRead = !readPart(segments);
  sendQueued(segments);
  return isRead && !log.isEnded();
}

function confirm(segments: SegmentWriter): void {
  const { log, events, reads } = segments;
  if (log.isEnded()) return;
  const stored = log.stored();
  const last = reads.findLast(({ segment }) => segment <= stored);
  if (last === undefined) return;
  segments.reads = reads.filter(({ segment }) => segment > stored);
  events.onStored(last.ticket, last.timeMs);
}

/**
 * Reads what is new, remembers its commits, sends it, and confirms what is stored. It does not wait.
 * @throws {Error} if parts of the WAL are lost
 */
export function advance(segments: SegmentWriter): void {
  const { archive, log, queue, reader, reads, lastRead } = segments;
  const timeMs = archive.nowMs();
  // Not before there is room, so that all writes until then share a segment.
  const hasRoom = queue.length === 0 && maySend(segments, lastRead.number + 1);
  const isRead = hasRoom ? readAll(segments) : reader.unreadBytes() === 0;
  if (log.isEnded()) return;
  if (isRead) {
    segments.readTicket = archive.lastTicket;
    const { number } = segments.lastRead;
    if (reads.at(-1)?.segment === number) reads.pop();
    reads.push({ segment: number, ticket: segments.readTicket, timeMs });
  }
  confirm(segments);
}

/** @returns the last segment that the archive has of this database */
export function lastStored({ log, beginning, lastRead }: SegmentWriter): SegmentId {
  const number = log.stored();
  return number === 0 ? beginning.last : { generation: lastRead.generation, number };
}

/** @returns the bytes of the WAL that are not in the archive */
export function bytesBehind({ pendingBytes, reader }: SegmentWriter): number {
  return pendingBytes + reader.unreadBytes();
}
