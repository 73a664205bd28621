/** Sends the WAL to the archive, as segments of one generation. */
import { fail } from "../../error.ts";
import type { ObjectStorage } from "../../object-storage.ts";
import { encodeSegment, type SegmentKey, segmentKey } from "./format.ts";
import type { Beginning } from "./generation.ts";
import type { Problems } from "./problems.ts";
import type { WalPart, WalPosition, WalReader } from "./wal-reader.ts";

/** How many segments are sent at the same time: concurrent writes share one, and the next one need not wait for it. */
const MAX_SENDING = 4;
/** Bytes of the WAL that wait in memory. Beyond, they stay in the WAL, which is not checkpointed then. */
const MAX_QUEUED_BYTES = 32 * 2 ** 20;

interface SegmentWriterOptions {
  readonly storage: Pick<ObjectStorage, "put">;
  readonly problems: Problems;
  readonly beginning: Pick<Beginning, "generation" | "position" | "previous" | "timeMs">;
  readonly reader: WalReader;
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
  /** Whether everything that was read is being sent, and another segment could be. */
  hasRoom(): boolean;
  /** The last segment that was read. Before the first one, its number is 0, and its time that of what is continued. */
  lastRead(): SegmentKey;
  /** Number of the last segment that the archive has, with all before it. */
  stored(): number;
  /** Waits until the archive has this segment and all before it. @throws {AppError} unavailable if it ends before */
  untilStored(number: number): Promise<void>;
  /** Bytes of compressed segments that the archive has. */
  storedBytes(): number;
  /** Bytes that were read, and are not in the archive. */
  pendingBytes(): number;
  /** Number of the first segment since the restart of the WAL; `null` if it is in an earlier generation. */
  firstOfWal(): number | null;
  /** Sends nothing more, as if the storage were unreachable. */
  end(): void;
  isEnded(): boolean;
}

export function createSegmentWriter(options: SegmentWriterOptions): SegmentWriter {
  const { storage, problems, beginning, reader, nowMs, onStored, onGap, onError } = options;
  const generation = beginning.generation.number;
  const queue: Queued[] = [];
  let queuedBytes = 0;
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
  const waiters = new Set<() => void>();

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
    for (const wake of waiters) wake();
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

  return {
    readAll() {
      let isRead = false;
      while (!isRead && !ended && queuedBytes < MAX_QUEUED_BYTES) isRead = !readPart();
      sendQueued();
      return isRead && !ended;
    },
    hasRoom: () => queue.length === 0 && sending < MAX_SENDING,
    lastRead: () => lastRead,
    stored: () => stored,
    async untilStored(number) {
      while (!ended && stored < number) {
        const { promise, resolve } = Promise.withResolvers<void>();
        waiters.add(resolve);
        await promise;
        waiters.delete(resolve);
      }
      if (ended) fail("unavailable", "the archive was closed");
    },
    storedBytes: () => storedBytes,
    pendingBytes: () => pendingBytes,
    firstOfWal: () => firstOfWal,
    end() {
      ended = true;
      for (const wake of waiters) wake();
    },
    isEnded: () => ended,
  };
}
