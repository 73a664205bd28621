/** Sends the WAL to the archive, as segments of one generation. */
import type { ObjectStorage } from "../../object-storage.ts";
import { encodeSegment, type SegmentKey, segmentKey } from "./format.ts";
import type { Beginning } from "./generation.ts";
import type { Problems } from "./problems.ts";
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
  readonly nowMs: () => number;
  /** Called when more segments are in the archive. */
  readonly onStored: () => void;
  /** Called once, when parts of the WAL are lost. */
  readonly onGap: () => void;
  readonly onError: (error: unknown) => void;
}

interface Queued extends SegmentKey {
  readonly part: WalPart;
  readonly previous: WalPosition | null;
}

export interface SegmentWriter {
  /**
   * Reads the WAL to its end, and sends what was read. It does not wait.
   * @returns false if the memory for it is used up, or the generation has ended
   */
  readAll(): boolean;
  /**
   * Like `readAll` if another segment can be sent. Otherwise it reads nothing, so that all writes until then share one.
   * @returns whether everything that was committed was read
   */
  readIfRoom(): boolean;
  /** The last segment that was read. Before the first one, its number is 0, and its time that of what is continued. */
  lastRead(): SegmentKey;
  /** Number of the last segment that the archive has, with all before it. */
  stored(): number;
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
  const { storage, problems, beginning, files, nowMs, onStored, onGap, onError } = options;
  const reader = createWalReader(files, beginning.position);
  const generation = beginning.generation.number;
  const queue: Queued[] = [];
  let queuedBytes = 0;
  /** Bytes that were read, and are not in the archive. */
  let pendingBytes = 0;
  let sending = 0;
  let lastRead: SegmentKey = { generation, number: 0, timeMs: beginning.timeMs };
  let stored = 0;
  let storedBytes = 0;
  let { previous } = beginning;
  let firstOfWal = beginning.position.offset === 0 ? 1 : null;
  let ended = false;
  /** Segments that the archive has, while an earlier one is being sent. */
  const early = new Set<number>();

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
    queue.push({ ...lastRead, part, previous });
    previous = part.end;
    queuedBytes += part.bytes.length;
    pendingBytes += part.bytes.length;
    return true;
  }

  async function sendOne({ number, part, previous: before, timeMs }: Queued): Promise<void> {
    const { salt, offset, end, bytes } = part;
    const header = { generation, number, salt, offset, end, previous: before, stored };
    const body = await encodeSegment(header, bytes);
    const key = segmentKey({ generation, number, timeMs });
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
    onStored();
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

  return {
    readAll,
    readIfRoom() {
      const hasRoom = queue.length === 0 && sending < MAX_SENDING;
      return hasRoom ? readAll() : reader.unreadBytes() === 0;
    },
    lastRead: () => lastRead,
    stored: () => stored,
    storedBytes: () => storedBytes,
    bytesBehind: () => pendingBytes + reader.unreadBytes(),
    firstOfWal: () => firstOfWal,
    end() {
      ended = true;
    },
    isEnded: () => ended,
  };
}
