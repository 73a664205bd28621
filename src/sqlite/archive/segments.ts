/** Sends the WAL to the archive, as segments of one generation, and knows which commits the archive has. */
import { encodeChunk, type SegmentHeader, type SegmentId } from "./format.ts";
import type { Beginning } from "./generation.ts";
import type { Log } from "./log.ts";
import type { Progress, ProgressReader } from "./progress.ts";
import { createWalReader, type WalFiles, type WalPart, type WalPosition } from "./wal-reader.ts";

/** How many segments are sent at the same time: concurrent writes share one, and the next one need not wait for it. */
const MAX_SENDING = 4;
/** Bytes of the WAL that wait in memory. Beyond, they stay in the WAL, which is not checkpointed then. */
const MAX_QUEUED_BYTES = 32 * 2 ** 20;

interface SegmentWriterOptions {
  readonly log: Log;
  readonly beginning: Pick<Beginning, "generation" | "position" | "previous" | "last" | "timeMs">;
  readonly files: WalFiles;
  readonly progress: Pick<ProgressReader, "read">;
  readonly nowMs: () => number;
  /** @returns the ticket of the last commit that was counted */
  readonly lastTicket: () => number;
  /** Whether what is stored can be restored. */
  readonly canConfirm: () => boolean;
  /** Called when the archive has all commits up to this ticket and until this time. */
  readonly onConfirmed: (ticket: number, untilMs: number) => void;
  /** Called once, when parts of the WAL are lost. */
  readonly onGap: () => void;
  readonly onError: (error: unknown) => void;
}

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

export interface SegmentWriter {
  /** Reads what is new, remembers its commits, sends it, and confirms what is stored. It does not wait. */
  advance(): void;
  /**
   * Reads the WAL to its end, and sends what was read. It does not wait.
   * @returns false if the memory for it is used up, or the generation has ended
   */
  readAll(): boolean;
  /** The last segment that was read. Before the first one, its number is 0, and its time that of what is continued. */
  lastRead(): Segment;
  /** The last segment that the archive has of this database. */
  last(): SegmentId;
  /** Bytes of compressed segments that the archive has. */
  storedBytes(): number;
  /** Bytes of the WAL that are not in the archive. */
  bytesBehind(): number;
  /** Number of the first segment since the restart of the WAL; `null` if it is in an earlier generation. */
  firstOfWal(): number | null;
}

export function createSegmentWriter(options: SegmentWriterOptions): SegmentWriter {
  const { log, beginning, files, progress, nowMs, lastTicket } = options;
  const { canConfirm, onConfirmed, onGap, onError } = options;
  const reader = createWalReader(files, beginning.position);
  const { number: generation, name: writer } = beginning.generation;
  const queue: Queued[] = [];
  let queuedBytes = 0;
  /** Bytes that were read, and are not in the archive. */
  let pendingBytes = 0;
  let sending = 0;
  let lastRead: Segment = { generation, number: 0, timeMs: beginning.timeMs };
  let storedBytes = 0;
  let { previous } = beginning;
  /** That of what was read; less while there is more to read. */
  let reached: Progress | null = null;
  let firstOfWal = beginning.position.offset === 0 ? 1 : null;
  /** One for each segment that is not confirmed, or the last one. */
  let reads: Read[] = [];
  /** That of the last commit that was counted when the end of the WAL was read. */
  let readTicket = 0;

  function readPart(): boolean {
    const part = reader.read();
    if (part === null) return false;
    if (part === "gap") {
      log.end();
      onGap();
      return false;
    }
    const number = lastRead.number + 1;
    if (part.offset === 0) firstOfWal = number;
    // Never earlier than the previous one, also if the clock goes back.
    lastRead = { generation, number, timeMs: Math.max(lastRead.timeMs, nowMs()) };
    const current = progress.read();
    // Otherwise it may be that of a commit that was not read. Another part follows then.
    if (reader.unreadBytes() === 0) reached = current ?? reached;
    queue.push({ ...lastRead, part, previous, reached });
    previous = part.end;
    queuedBytes += part.bytes.length;
    pendingBytes += part.bytes.length;
    return true;
  }

  async function sendOne(queued: Queued): Promise<void> {
    const { part, previous: before, reached: then, ...id } = queued;
    const { bytes, ...place } = part;
    const { body, chunk } = await encodeChunk(bytes);
    const slot = { kind: "segment", ...id, writer, confirmed: log.stored() } as const;
    const header: SegmentHeader = { ...slot, ...place, previous: before, progress: then, ...chunk };
    // Otherwise another generation may have begun, which counts its own segments.
    if (!(await log.append(header, body))) return;
    sending -= 1;
    pendingBytes -= bytes.length;
    storedBytes += body.length;
    sendQueued();
    if (readTicket < lastTicket()) advance();
    else confirm();
  }

  function sendQueued(): void {
    while (!log.isEnded() && sending < MAX_SENDING) {
      const next = queue.shift();
      if (next === undefined) return;
      queuedBytes -= next.part.bytes.length;
      sending += 1;
      sendOne(next).catch((error) => {
        if (!log.isEnded()) onError(error);
      });
    }
  }

  function readAll(): boolean {
    let isRead = false;
    while (!isRead && !log.isEnded() && queuedBytes < MAX_QUEUED_BYTES) isRead = !readPart();
    sendQueued();
    return isRead && !log.isEnded();
  }

  function confirm(): void {
    if (log.isEnded() || !canConfirm()) return;
    const stored = log.stored();
    const last = reads.findLast(({ segment }) => segment <= stored);
    if (last === undefined) return;
    reads = reads.filter(({ segment }) => segment > stored);
    onConfirmed(last.ticket, last.timeMs);
  }

  function advance(): void {
    const timeMs = nowMs();
    // Not before there is room, so that all writes until then share a segment.
    const hasRoom = queue.length === 0 && sending < MAX_SENDING;
    const isRead = hasRoom ? readAll() : reader.unreadBytes() === 0;
    if (log.isEnded()) return;
    if (isRead) {
      readTicket = lastTicket();
      if (reads.at(-1)?.segment === lastRead.number) reads.pop();
      reads.push({ segment: lastRead.number, ticket: readTicket, timeMs });
    }
    confirm();
  }

  return {
    advance,
    readAll,
    lastRead: () => lastRead,
    last: () => (log.stored() === 0 ? beginning.last : { generation, number: log.stored() }),
    storedBytes: () => storedBytes,
    bytesBehind: () => pendingBytes + reader.unreadBytes(),
    firstOfWal: () => firstOfWal,
  };
}
