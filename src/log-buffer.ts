/**
 * Log lines on their way to a reader that may be slow or stand still. The server never waits for it: lines
 * are kept up to a limit, then dropped and counted.
 */

/** Lines are gathered before they are written: one system call for each would cost more than the request. */
const GATHER_MS = 10;
/** How much is kept, in characters; a single line may exceed it. */
const MAX_KEPT = 2 ** 20;
/** Bytes of one write. Each completed write counts as progress of a slow reader. */
const CHUNK_BYTES = 64 * 1024;
/** How long `finish` waits without progress. */
const MAX_STALL_MS = 1_000;

/**
 * Writes without blocking the event loop. Bun has only two threads for that on a small machine, so a buffer
 * has at most one write in progress.
 * @returns how many bytes were written; `null` if the reader has gone
 * @throws if the bytes cannot be written, e.g. to a full disk
 */
export type WriteBytes = (bytes: Uint8Array) => Promise<number | null>;

export interface LogBuffer {
  /** @param text one or more whole lines */
  write(text: string): void;
  /** Lines that could not be written so far. */
  droppedLines(): number;
  /** @param report called when writing works again, with the number of lines dropped since the last call */
  onResume(report: (lines: number) => void): void;
  /**
   * Writes what is kept, unless the reader makes no progress for a second.
   * @returns false if a write has failed since the start
   */
  finish(): Promise<boolean>;
}

function countLines(text: Uint8Array): number {
  let lines = 0;
  for (const byte of text) if (byte === 0x0a) lines += 1;
  return lines;
}

export function createLogBuffer(writeBytes: WriteBytes): LogBuffer {
  let kept = "";
  /** Being written; empty if no write is in progress. */
  let rest: Uint8Array = new Uint8Array();
  let flushing: Promise<void> | null = null;
  let timer: Timer | null = null;
  let dropped = 0;
  let unreported = 0;
  let failed = false;
  let progress_ms = 0;
  let report: (lines: number) => void = () => {};

  const isFull = () => kept.length + rest.length >= MAX_KEPT;

  function drop(lines: number): void {
    dropped += lines;
    unreported += lines;
  }

  function onProgress(): void {
    progress_ms = performance.now();
    // The report is a line itself and needs room.
    if (unreported === 0 || isFull()) return;
    const lines = unreported;
    unreported = 0;
    report(lines);
  }

  async function writeRest(): Promise<void> {
    while (rest.length > 0) {
      const count = await writeBytes(rest.subarray(0, CHUNK_BYTES));
      if (count === null) return;
      rest = rest.subarray(count);
      if (count > 0) onProgress();
    }
  }

  async function flushKept(): Promise<void> {
    rest = Buffer.from(kept);
    kept = "";
    try {
      await writeRest();
    } catch {
      // The server goes on without its log; its exit code tells.
      failed = true;
    }
    drop(countLines(rest));
    rest = new Uint8Array();
    flushing = null;
    schedule();
  }

  function flush(): Promise<void> {
    if (timer !== null) clearTimeout(timer);
    timer = null;
    flushing ??= flushKept();
    return flushing;
  }

  function schedule(): void {
    if (kept !== "" && flushing === null) timer ??= setTimeout(flush, GATHER_MS);
  }

  return {
    write(text) {
      if (isFull()) return drop(1);
      kept += text;
      schedule();
    },
    droppedLines: () => dropped,
    onResume(callback) {
      report = callback;
    },
    async finish() {
      let done = false;
      const flushAll = async () => {
        while (kept !== "" || flushing !== null) await flush();
        done = true;
      };
      progress_ms = performance.now();
      const all = flushAll();
      while (!done && performance.now() - progress_ms < MAX_STALL_MS) {
        await Promise.race([all, Bun.sleep(50)]);
      }
      return !failed;
    },
  };
}
