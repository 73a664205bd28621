/**
 * Pages of more than 256 KiB. They are built in slices, one page at a time, so that other requests get their
 * turn, and into buffers whose number is bounded for the whole process: readers that stand still hold no more.
 */
import { fail, failField } from "./error.ts";
import { type Chunks, LARGE_PAGE_BYTES, MAX_PAGE_BYTES, type Page } from "./page.ts";

const BUFFER_BYTES = LARGE_PAGE_BYTES;
/** Unused buffers that are kept for the next page. */
const MAX_FREE_BUFFERS = 16;
/** Pages that wait until those before them are built; one more is rejected. */
const MAX_WAITING = 64;
/** What a response adds to its records: `{"data":[],"error":null,"meta":…}` with the largest numbers. */
const ENVELOPE_BYTES = 128;
/**
 * Garbage is collected after this many bytes of records. JavaScriptCore lets it grow with the memory of the
 * machine, of which a container may have little: of pages of 16 MiB it kept 270 MB, now 60.
 */
const COLLECT_BYTES = 2 * 2 ** 20;
const COMMA = 0x2c;
/** The longest encoding of one UTF-16 unit. */
const MAX_UNIT_BYTES = 3;

const mebibytes = MAX_PAGE_BYTES / 2 ** 20;

export interface PageBuilder {
  /**
   * @param records JSON, one text each
   * @throws {AppError} invalid if the page exceeds 16 MiB
   * @throws {AppError} unavailable if the process has no buffer left
   */
  add(records: readonly string[]): void;
  /** Starts again without any record. */
  clear(): void;
}

/** What a page has beside its records. */
export type BuiltPage = Omit<Page, "records">;

export interface LargePages {
  /**
   * @param work adds the records, all from one snapshot, and returns the rest of the page
   * @throws {AppError} unavailable if too many pages wait, or are not sent yet
   */
  build(work: (page: PageBuilder) => Promise<BuiltPage>): Promise<Page>;
  /** Bytes of the buffers in use. */
  unsentBytes(): number;
}

interface BufferPool {
  /** @returns `null` if all are in use */
  take(): Uint8Array | null;
  release(buffer: Uint8Array): void;
  usedBytes(): number;
}

function createBufferPool(max_bytes: number): BufferPool {
  const free: Uint8Array[] = [];
  let used_bytes = 0;
  return {
    take() {
      if (used_bytes + BUFFER_BYTES > max_bytes) return null;
      used_bytes += BUFFER_BYTES;
      return free.pop() ?? new Uint8Array(BUFFER_BYTES);
    },
    release(buffer) {
      used_bytes -= BUFFER_BYTES;
      if (free.length < MAX_FREE_BUFFERS) free.push(buffer);
    },
    usedBytes: () => used_bytes,
  };
}

function failBusy(): never {
  fail(
    "unavailable",
    "too many large pages have not been sent yet: ask for a smaller page, or retry",
  );
}

interface Filled {
  readonly buffer: Uint8Array;
  length: number;
}

/** Releases each buffer when the one after it is asked for: then Bun has sent or copied it. */
function createChunks(filled: Filled[], bytes: number, pool: BufferPool): Chunks {
  let current: Filled | undefined;
  function next(): Uint8Array | null {
    if (current !== undefined) pool.release(current.buffer);
    current = filled.shift();
    return current === undefined ? null : current.buffer.subarray(0, current.length);
  }
  return {
    bytes,
    next,
    [Symbol.dispose]() {
      while (next() !== null);
    },
  };
}

/** @returns counts bytes that have become garbage, and collects it in time */
function createCollector(): (bytes: number) => void {
  let pending_bytes = 0;
  return (bytes) => {
    pending_bytes += bytes;
    if (pending_bytes < COLLECT_BYTES) return;
    pending_bytes = 0;
    Bun.gc(true);
  };
}

function createBuilder(pool: BufferPool, collect: (bytes: number) => void) {
  const encoder = new TextEncoder();
  let filled: Filled[] = [];
  let bytes = 0;
  let count = 0;

  function openBuffer(): Filled {
    const opened = { buffer: pool.take() ?? failBusy(), length: 0 };
    filled.push(opened);
    return opened;
  }

  /** @returns a buffer in which there is room for any UTF-16 unit */
  function currentBuffer(): Filled {
    const last = filled.at(-1);
    const has_room = last !== undefined && last.length + MAX_UNIT_BYTES < BUFFER_BYTES;
    return has_room ? last : openBuffer();
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

  return {
    add(records: readonly string[]) {
      const before = bytes;
      for (const record of records) addRecord(record);
      collect(bytes - before);
    },
    clear() {
      for (const { buffer } of filled) pool.release(buffer);
      filled = [];
      bytes = 0;
      count = 0;
    },
    finish: () => createChunks(filled, bytes, pool),
  };
}

/** @param max_unsent_bytes of all large pages that are being built or sent */
export function createLargePages(max_unsent_bytes: number): LargePages {
  const pool = createBufferPool(max_unsent_bytes);
  const collect = createCollector();
  let last: Promise<unknown> = Promise.resolve();
  let waiting = 0;

  async function buildNow(work: (page: PageBuilder) => Promise<BuiltPage>): Promise<Page> {
    const builder = createBuilder(pool, collect);
    try {
      const built = await work(builder);
      return { ...built, records: builder.finish() };
    } catch (error) {
      builder.clear();
      throw error;
    }
  }

  return {
    async build(work) {
      // What was read until the page proved to be large.
      collect(LARGE_PAGE_BYTES);
      if (waiting >= MAX_WAITING || pool.usedBytes() + BUFFER_BYTES > max_unsent_bytes) failBusy();
      waiting += 1;
      const built = last.then(() => buildNow(work)).finally(() => (waiting -= 1));
      last = built.catch(() => {});
      return built;
    },
    unsentBytes: pool.usedBytes,
  };
}
