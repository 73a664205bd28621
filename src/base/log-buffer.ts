/** Buffers log lines, so that a server never waits for their reader. Beyond a limit, lines are dropped and counted. */

/** Output is buffered for this long: a system call per line would cost more than the request. */
const BUFFER_MS = 10;
/** Maximum size of the buffer, in characters; a single line may exceed it. */
const MAX_KEPT = 2 ** 20;
/** Bytes of one write. Each completed write counts as progress of a slow reader. */
const CHUNK_BYTES = 64 * 1024;
const MAX_STALL_MS = 1_000;

/** Does not block. @returns how many bytes were written; `null` if the reader has gone. @throws e.g. if the disk is full */
export type WriteBytes = (bytes: Uint8Array) => Promise<number | null>;

export type LogBuffer = ReturnType<typeof createLogBuffer>;

function countLines(text: Uint8Array): number {
  return text.filter((byte) => byte === 0x0a).length;
}

export function createLogBuffer(writeBytes: WriteBytes) {
  let kept = "";
  /** The part that is being written; empty if no write is in progress. */
  let rest: Uint8Array = new Uint8Array();
  let flushing: Promise<void> | null = null;
  let dropped = 0;
  let reported = 0;
  let failed = false;
  let progressMs = 0;
  let report: (lines: number) => void = () => {};

  const isFull = () => kept.length + rest.length >= MAX_KEPT;

  function onProgress(): void {
    progressMs = performance.now();
    // The report is a line itself and needs room.
    if (dropped === reported || isFull()) return;
    const lines = dropped - reported;
    reported = dropped;
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

  async function flush(): Promise<void> {
    while (kept !== "") {
      await Bun.sleep(BUFFER_MS);
      rest = Buffer.from(kept);
      kept = "";
      try {
        await writeRest();
      } catch {
        // The server continues without its log. The exit code reports it.
        failed = true;
      }
      dropped += countLines(rest);
      rest = new Uint8Array();
    }
    flushing = null;
  }

  return {
    /** @param text one or more whole lines */
    write(text: string): void {
      if (isFull()) {
        dropped += countLines(Buffer.from(text));
        return;
      }
      kept += text;
      flushing ??= flush();
    },
    droppedLines: () => dropped,
    /** @param callback called when writing works again, with the number of lines dropped since the last call */
    onResume(callback: (lines: number) => void): void {
      report = callback;
    },
    /** Gives up if the reader makes no progress for a second. @returns false if a write has failed since the start */
    async finish(): Promise<boolean> {
      progressMs = performance.now();
      while (flushing !== null && performance.now() - progressMs < MAX_STALL_MS)
        await Promise.race([flushing, Bun.sleep(50)]);
      return !failed;
    },
  };
}
