/**
 * Pages of more than 256 KiB. One page is built at a time, in slices. Other requests are served between two
 * slices. The buffers of all pages share a limit, so slow clients cannot exhaust memory.
 */
import { AppError, failField } from "./error.ts";
import { type Chunks, LARGE_PAGE_BYTES, MAX_PAGE_BYTES, type Page } from "./page.ts";

const BUFFER_BYTES = LARGE_PAGE_BYTES;
/** Maximum number of unused buffers that are kept for reuse. */
const MAX_FREE_BUFFERS = 16;
/** Maximum number of pages that are being built or waiting. Further pages are rejected. */
const MAX_WAITING = 64;
/** Maximum time that a page waits for earlier pages. */
const MAX_WAIT_MS = 5_000;
/** Size of a response without its records: `{"data":[],"error":null,"meta":…}` with the largest numbers. */
const ENVELOPE_BYTES = 128;
/**
 * Garbage is collected after this many bytes of records. JavaScriptCore sizes its heap by the memory of the
 * machine, not of the container. Without this limit, pages of 16 MiB left 270 MB of garbage; with it, 60 MB.
 */
const COLLECT_BYTES = 2 * 2 ** 20;
const COMMA = 0x2c;
/** Longest encoding of a character. */
const MAX_CHARACTER_BYTES = 4;

const mebibytes = MAX_PAGE_BYTES / 2 ** 20;

export interface PageBuilder {
  /**
   * @param records JSON, one string per record
   * @throws {AppError} invalid if the page exceeds 16 MiB
   * @throws {AppError} unavailable if all buffers are in use
   */
  add(records: readonly string[]): void;
  /** Removes all records. */
  clear(): void;
}

/** A page without its records. */
export type BuiltPage = Omit<Page, "records">;

export interface LargePages {
  /**
   * Builds a page after all earlier pages.
   * @param work adds the records, all from one snapshot, and returns the rest of the page
   * @throws {AppError} unavailable if too many pages are waiting or not sent yet
   */
  build(work: (page: PageBuilder) => Promise<BuiltPage>): Promise<Page>;
  /** Size of all buffers in use. */
  unsentBytes(): number;
}

interface BufferPool {
  /** @returns a buffer; `null` if all are in use */
  take(): Uint8Array | null;
  release(buffer: Uint8Array): void;
  usedBytes(): number;
}

function createBufferPool(maxBytes: number): BufferPool {
  const free: Uint8Array[] = [];
  let usedBytes = 0;
  return {
    take() {
      if (usedBytes + BUFFER_BYTES > maxBytes) return null;
      usedBytes += BUFFER_BYTES;
      return free.pop() ?? new Uint8Array(BUFFER_BYTES);
    },
    release(buffer) {
      usedBytes -= BUFFER_BYTES;
      if (free.length < MAX_FREE_BUFFERS) free.push(buffer);
    },
    usedBytes: () => usedBytes,
  };
}

function busyError(): AppError {
  const advice = "request a smaller page or retry later";
  return new AppError("unavailable", `too many large pages in progress: ${advice}`);
}

/** @throws {AppError} unavailable if the earlier pages take too long */
async function waitForEarlier(previous: Promise<void>): Promise<void> {
  const { promise: timeout, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(busyError()), MAX_WAIT_MS);
  try {
    await Promise.race([previous, timeout]);
  } finally {
    clearTimeout(timer);
  }
}

interface Filled {
  readonly buffer: Uint8Array;
  length: number;
}

/** Releases each buffer when the next one is requested: by then Bun has sent or copied it. */
function createChunks(filled: Filled[], pool: BufferPool): Chunks {
  let current: Filled | undefined;
  function next(): Uint8Array | null {
    if (current !== undefined) pool.release(current.buffer);
    current = filled.shift();
    return current === undefined ? null : current.buffer.subarray(0, current.length);
  }
  return {
    next,
    [Symbol.dispose]() {
      while (next() !== null);
    },
  };
}

/** @returns a function that counts bytes of garbage and runs the collector every `COLLECT_BYTES` */
function createCollector(): (bytes: number) => void {
  let pendingBytes = 0;
  return (bytes) => {
    pendingBytes += bytes;
    if (pendingBytes < COLLECT_BYTES) return;
    pendingBytes = 0;
    Bun.gc(true);
  };
}

function createBuilder(pool: BufferPool, collect: (bytes: number) => void) {
  const encoder = new TextEncoder();
  let filled: Filled[] = [];
  let bytes = 0;
  let count = 0;
  let closed = false;

  function openBuffer(): Filled {
    const buffer = pool.take();
    if (buffer === null) throw busyError();
    const opened = { buffer, length: 0 };
    filled.push(opened);
    return opened;
  }

  /** @returns a buffer with room for at least one character of any length */
  function currentBuffer(): Filled {
    const last = filled.at(-1);
    const hasRoom = last !== undefined && BUFFER_BYTES - last.length >= MAX_CHARACTER_BYTES;
    return hasRoom ? last : openBuffer();
  }

  function write(text: string): void {
    for (let rest = text; rest !== ""; ) {
      const target = currentBuffer();
      const { read, written } = encoder.encodeInto(rest, target.buffer.subarray(target.length));
      target.length += written;
      bytes += written;
      rest = rest.slice(read);
    }
  }

  function addRecord(record: string): void {
    if (count > 0) {
      const target = currentBuffer();
      target.buffer[target.length] = COMMA;
      target.length += 1;
      bytes += 1;
    }
    write(record);
    if (bytes > MAX_PAGE_BYTES - ENVELOPE_BYTES) {
      const reason = `since the page would exceed ${mebibytes} MiB`;
      failField("limit", `must be at most ${count} here, ${reason}`);
    }
    count += 1;
  }

  function clear(): void {
    for (const { buffer } of filled) pool.release(buffer);
    filled = [];
    bytes = 0;
    count = 0;
  }

  return {
    add(records: readonly string[]) {
      // Work that was abandoned must not take buffers that are never released.
      if (closed) throw new Error("records were added to a finished page");
      const before = bytes;
      for (const record of records) addRecord(record);
      collect(bytes - before);
    },
    clear,
    finish() {
      closed = true;
      return createChunks(filled, pool);
    },
    discard() {
      closed = true;
      clear();
    },
  };
}

/** @param maxUnsentBytes maximum size of all large pages that are being built or sent */
export function createLargePages(maxUnsentBytes: number): LargePages {
  const pool = createBufferPool(maxUnsentBytes);
  const collect = createCollector();
  let last: Promise<void> = Promise.resolve();
  let waiting = 0;

  async function buildNow(work: (page: PageBuilder) => Promise<BuiltPage>): Promise<Page> {
    const builder = createBuilder(pool, collect);
    try {
      const built = await work(builder);
      return { ...built, records: builder.finish() };
    } catch (error) {
      builder.discard();
      throw error;
    }
  }

  return {
    async build(work) {
      // The attempt to read it as a small page left this much garbage.
      collect(LARGE_PAGE_BYTES);
      const hasBuffer = pool.usedBytes() + BUFFER_BYTES <= maxUnsentBytes;
      if (waiting >= MAX_WAITING || !hasBuffer) throw busyError();
      waiting += 1;
      const previous = last;
      const built = waitForEarlier(previous).then(() => buildNow(work));
      last = Promise.allSettled([previous, built]).then(() => {});
      return built.finally(() => {
        waiting -= 1;
      });
    },
    unsentBytes: pool.usedBytes,
  };
}
