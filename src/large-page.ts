/**
 * Pages of more than 256 KiB. One page is built at a time, in slices, in a queue that is fair to clients. Other requests
 * are served between two slices. The buffers of all pages share a limit, of which one client gets half, so slow clients
 * can neither exhaust memory nor keep it from others.
 */
import { type Budget, createBudget } from "./budget.ts";
import { endTurn } from "./end-turn.ts";
import { failField } from "./error.ts";
import { createFairQueue } from "./fair-queue.ts";
import { createCollector } from "./garbage.ts";
import { type Chunks, LARGE_PAGE_BYTES, MAX_PAGE_BYTES, type Page } from "./page.ts";

const BUFFER_BYTES = LARGE_PAGE_BYTES;
/** Maximum number of unused buffers that are kept for reuse. */
const MAX_FREE_BUFFERS = 16;
/** Maximum number of pages that wait to be built, half of them of one client. Further pages are rejected. */
const MAX_WAITING = 64;
const QUEUE_TIMEOUT_MS = 5_000;
/** Size of a response without its records: `{"data":[],"error":null,"meta":…}` with the largest numbers and names. */
const ENVELOPE_BYTES = 256;
/** Longest encoding of a character. */
const MAX_CHARACTER_BYTES = 4;

export interface PageBuilder {
  /**
   * Reserves memory, so that a page without room is rejected before its records are read.
   * @param bytes upper bound of the size of all records
   * @throws {AppError} unavailable if the memory is in use
   */
  reserve(bytes: number): void;
  /**
   * @param records JSON, one string per record
   * @throws {AppError} validation_failed if the page exceeds 16 MiB
   * @throws {AppError} unavailable if more memory is needed than was reserved, and it is in use
   */
  add(records: readonly string[]): void;
  clear(): void;
}

/** A page without its records. */
export type BuiltPage = Omit<Page, "records">;

export interface LargePages {
  /**
   * Builds a page as soon as it is first in the queue.
   * @param work adds the records, all from one snapshot, and returns the rest of the page
   * @param client who reads it: as in `RecordStore.list`
   * @throws {AppError} unavailable if too many pages are waiting or not sent yet
   */
  build<Rest extends BuiltPage>(
    work: (page: PageBuilder) => Promise<Rest>,
    client?: string,
  ): Promise<Rest & Pick<Page, "records">>;
  /**
   * Counts the body of a response like a page.
   * @param client as of `build`. Those without a token are one client
   * @returns a function that frees its bytes, which may be called several times
   * @throws {AppError} unavailable if too many bytes are not sent yet
   */
  hold(bytes: number, client?: string): () => void;
  /** Memory of all pages that are being built or sent, and of all bodies that are held. */
  unsentBytes(): number;
}

const problem = "too many large pages in progress: request a smaller page or retry later";

type PageBuffers = ReturnType<ReturnType<typeof createBuffers>>;

function createBuffers(budget: Budget) {
  const free: Uint8Array[] = [];

  /** @returns the memory of one page */
  return (client: string) => {
    const memory = budget.share(client);
    let reserved = 0;
    let taken = 0;

    /** @throws {AppError} unavailable if so many bytes in all exceed the limit of the process or of the client */
    function reserve(bytes: number): void {
      if (bytes <= reserved) return;
      memory.take(bytes - reserved);
      reserved = bytes;
    }

    return {
      /** @throws {AppError} unavailable if not one more buffer fits */
      requireRoom: () => memory.require(BUFFER_BYTES),
      reserve,
      /** @returns a buffer, reserved if necessary. @throws {AppError} unavailable as `reserve` */
      take(): Uint8Array {
        reserve(taken + BUFFER_BYTES);
        taken += BUFFER_BYTES;
        return free.pop() ?? new Uint8Array(BUFFER_BYTES);
      },
      release(buffer: Uint8Array) {
        taken -= BUFFER_BYTES;
        reserved -= BUFFER_BYTES;
        memory.change(-BUFFER_BYTES);
        if (free.length < MAX_FREE_BUFFERS) free.push(buffer);
      },
      /** Gives back what is reserved and not taken. */
      trim() {
        memory.change(taken - reserved);
        reserved = taken;
      },
    };
  };
}

interface Filled {
  readonly buffer: Uint8Array;
  length: number;
}

/** Releases each buffer when the next one is requested: by then Bun has sent or copied it. */
function createChunks(filled: Filled[], buffers: PageBuffers): Chunks {
  let current: Filled | undefined;
  function next(): Uint8Array | null {
    if (current !== undefined) buffers.release(current.buffer);
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

function createBuilder(buffers: PageBuffers, collect: (bytes: number) => void) {
  const encoder = new TextEncoder();
  let filled: Filled[] = [];
  let bytes = 0;
  let count = 0;
  let closed = false;

  /** @returns a buffer with room for at least one character of any length */
  function currentBuffer(): Filled {
    const last = filled.at(-1);
    if (last !== undefined && BUFFER_BYTES - last.length >= MAX_CHARACTER_BYTES) return last;
    const opened = { buffer: buffers.take(), length: 0 };
    filled.push(opened);
    return opened;
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
    if (count > 0) write(",");
    write(record);
    if (bytes > MAX_PAGE_BYTES - ENVELOPE_BYTES) {
      const reason = `since the page would exceed ${MAX_PAGE_BYTES / 2 ** 20} MiB`;
      failField("limit", "range", `must be at most ${count} here, ${reason}`, {
        min: 1,
        max: count,
      });
    }
    count += 1;
  }

  function clear(): void {
    for (const { buffer } of filled) buffers.release(buffer);
    filled = [];
    bytes = 0;
    count = 0;
  }

  return {
    reserve(bound: number) {
      const needed = Math.ceil(Math.min(bound, MAX_PAGE_BYTES) / BUFFER_BYTES);
      buffers.reserve(needed * BUFFER_BYTES);
    },
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
      buffers.trim();
      return createChunks(filled, buffers);
    },
    discard() {
      closed = true;
      clear();
      buffers.trim();
    },
  };
}

/** @param maxUnsentBytes maximum memory of all pages that are being built or sent, unless there is only one */
export function createLargePages(maxUnsentBytes: number): LargePages {
  const budget = createBudget(maxUnsentBytes, problem);
  const buffersOf = createBuffers(budget);
  const collect = createCollector();
  const runFairly = createFairQueue({
    maxRunning: 1,
    maxWaiting: MAX_WAITING,
    queueTimeoutMs: QUEUE_TIMEOUT_MS,
    problem,
  });

  async function buildNow<Rest>(buffers: PageBuffers, work: (page: PageBuilder) => Promise<Rest>) {
    const builder = createBuilder(buffers, collect);
    try {
      const rest = await work(builder);
      return { ...rest, records: builder.finish() };
    } catch (error) {
      builder.discard();
      throw error;
    }
  }

  return {
    async build(work, client = "") {
      // The attempt to read it as a small page left this much garbage.
      collect(LARGE_PAGE_BYTES);
      // Bun accepts connections until none is waiting. Clients that are rejected and connect again in the same turn of the
      // event loop could prolong it without end, and no page would be built.
      await endTurn();
      const buffers = buffersOf(client);
      buffers.requireRoom();
      return runFairly(client, () => buildNow(buffers, work));
    },
    hold(bytes, client = "") {
      const share = budget.share(client);
      share.take(bytes);
      return share.release;
    },
    unsentBytes: budget.taken,
  };
}
