/** Sends the WAL to the archive, as segments of one generation, and knows which commits the archive has. */
import type { ObjectStorage } from "../../domain/object-storage.ts";
import { encodeSegment, type SegmentId, type SegmentKey, segmentKey } from "./format.ts";
import type { Beginning } from "./generation.ts";
import type { Problems } from "./problems.ts";
import type { Progress, ProgressReader } from "./progress.ts";
import { createWalReader, type WalFiles, type WalPart, type WalPosition } from "./wal-reader.ts";

/** How many segments are sent at the same time: concurrent writes share one, and the next one need not wait for it. */
const MAX_SENDING = 4;
/** Bytes of the WAL that wait in memory. Beyond, they stay in the WAL, which is not checkpointed then. */
const MAX_QUEUED_BYTES = 32 * 2 ** 20;

interface SegmentWriterOptions {
  readonly storage: Pick<ObjectStorage, "put">;
  readonly problems: Problems;
  readonly beginning: Pick<Beginning, "generation" | "position" | "previous" | "timeMs">;
  readonly files: WalFiles;
  readonly progress: Pick<ProgressReader, "read">;
  readonly nowMs: () => number;
  /** @returns the number of the last commit that was counted */
  readonly lastCommit: () => number;
  /** Whether what is stored can be restored, and no other server can write to the archive. */
  readonly canConfirm: () => boolean;
  /** Called when the archive has all commits up to this number and until this time. */
  readonly onConfirmed: (commit: number, untilMs: number) => void;
  /** Called once, when parts of the WAL are lost. */
  readonly onGap: () => void;
  readonly onError: (error: unknown) => void;
}

interface Queued extends SegmentKey {
  readonly part: WalPart;
  readonly previous: WalPosition | null;
  readonly reached: Progress | null;
}

/** The segments up to this one have everything that was committed until this time. */
interface Read {
  readonly segment: number;
  /** The last commit that was counted by then. */
  readonly commit: number;
  readonly timeMs: number;
}

export interface SegmentWriter {
  /** Sends what is new, and confirms what is stored. It does not wait. */
  send(): void;
  /**
   * Reads the WAL to its end, and sends what was read. It does not wait.
   * @returns false if the memory for it is used up, or the generation has ended
   */
  readAll(): boolean;
  /** The last segment that was read. Before the first one, its number is 0, and its time that of what is continued. */
  lastRead(): SegmentKey;
  /** Number of the last segment that the archive has, with all before it. */
  stored(): number;
  /** The last segment that the archive has of this database. */
  last(): SegmentId;
  /** Bytes of compressed segments that the archive has. */
  storedBytes(): number;
  /** Bytes of the WAL that are not in the archive. */
  bytesBehind(): number;
  /** Number of the first segment since the restart of the WAL; `null` if it is in an earlier generation. */
  firstOfWal(): number | null;
  /** Sends nothing more, as if the storage were unreachable. */
  end(): void;
  isEnded(): boolean;
}

export function createSegmentWriter(options: SegmentWriterOptions): SegmentWriter {
  const { storage, problems, beginning, files, progress, nowMs, lastCommit } = options;
  const { canConfirm, onConfirmed, onGap, onError } = options;
  const reader = createWalReader(files, beginning.position);
  const { number: generation, parent } = beginning.generation;
  const queue: Queued[] = [];
  let queuedBytes = 0;
  /** Bytes that were read, and are not in the archive. */
  let pendingBytes = 0;
  let sending = 0;
  let lastRead: SegmentKey = { generation, number: 0, timeMs: beginning.timeMs };
  let stored = 0;
  let storedBytes = 0;
  let { previous } = beginning;
  /** That of what was read; less while there is more to read. */
  let reached: Progress | null = null;
  let firstOfWal = beginning.position.offset === 0 ? 1 : null;
  let ended = false;
  /** Segments that the archive has, while an earlier one is being sent. */
  const early = new Set<number>();
  /** One for each segment that is not confirmed, or the last one. */
  let reads: Read[] = [];
  /** The last commit that was counted when the end of the WAL was read. */
  let readCommit = 0;

  function readPart(): boolean {
    const part = reader.read();
    if (part === null) return false;
    if (part === "gap") {
      ended = true;
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
    const { number } = queued;
    const { bytes, ...place } = queued.part;
    const position = { ...place, previous: queued.previous, stored };
    const header = { generation, number, ...position, progress: queued.reached };
    const body = await encodeSegment(header, bytes);
    const key = segmentKey(queued);
    await problems.retry(
      "segments",
      () => ended,
      () => storage.put(key, body),
    );
    // Another generation may have begun, which counts its own segments.
    if (ended) return;
    sending -= 1;
    pendingBytes -= bytes.length;
    storedBytes += body.length;
    early.add(number);
    while (early.delete(stored + 1)) stored += 1;
    sendQueued();
    if (readCommit < lastCommit()) send();
    else confirm();
  }

  function sendQueued(): void {
    while (!ended && sending < MAX_SENDING) {
      const next = queue.shift();
      if (next === undefined) return;
      queuedBytes -= next.part.bytes.length;
      sending += 1;
      sendOne(next).catch((error) => {
        if (!ended) onError(error);
      });
    }
  }

  function readAll(): boolean {
    let isRead = false;
    while (!isRead && !ended && queuedBytes < MAX_QUEUED_BYTES) isRead = !readPart();
    sendQueued();
    return isRead && !ended;
  }

  function confirm(): void {
    if (!canConfirm()) return;
    const last = reads.findLast(({ segment }) => segment <= stored);
    if (last === undefined) return;
    reads = reads.filter(({ segment }) => segment > stored);
    onConfirmed(last.commit, last.timeMs);
  }

  /** Remembers which commits the archive has when what was read is stored. */
  function send(): void {
    const timeMs = nowMs();
    // Not before there is room, so that all writes until then share a segment.
    const hasRoom = queue.length === 0 && sending < MAX_SENDING;
    const isRead = hasRoom ? readAll() : reader.unreadBytes() === 0;
    if (ended) return;
    if (isRead) {
      readCommit = lastCommit();
      if (reads.at(-1)?.segment === lastRead.number) reads.pop();
      reads.push({ segment: lastRead.number, commit: readCommit, timeMs });
    }
    confirm();
  }

  return {
    send,
    readAll,
    lastRead: () => lastRead,
    stored: () => stored,
    last: () => (stored === 0 && parent !== null ? parent : { generation, number: stored }),
    storedBytes: () => storedBytes,
    bytesBehind: () => pendingBytes + reader.unreadBytes(),
    firstOfWal: () => firstOfWal,
    end() {
      ended = true;
    },
    isEnded: () => ended,
  };
}
