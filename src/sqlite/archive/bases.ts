/** Copies the database file to the archive while it is in use, each time that a new copy is due. */
import { fstatSync, readSync } from "node:fs";
import { fail } from "../../base/error.ts";
import type { ArchiveContext } from "./context.ts";
import {
  type Base,
  baseKey,
  type Chunk,
  chunkKey,
  encodeChunk,
  encodeJson,
  type SegmentId,
} from "./format.ts";
import { advance, readAll, type SegmentWriter } from "./segments.ts";

const CHUNK_BYTES = 4 * 2 ** 20;
/**
 * A base is due when more than this, and more than its own size, was sent since the last one, or since the start. Both
 * are sizes of compressed objects.
 */
const MIN_BASE_BYTES = 64 * 2 ** 20;
const BASE_INTERVAL_MS = 24 * 60 * 60 * 1000;
const POLL_MS = 20;

export type Bases = ReturnType<typeof createBases>;

/** Checkpoints run between two chunks. The segments have each page that they copy. */
async function copyFile(
  { database }: ArchiveContext["files"],
  base: SegmentId,
  upload: (key: string, body: Uint8Array<ArrayBuffer>) => Promise<void>,
): Promise<Pick<Base, "chunks" | "storedBytes">> {
  // Another descriptor would release SQLite's locks on the file when it is closed.
  const { size } = fstatSync(database);
  const chunks: Chunk[] = [];
  let storedBytes = 0;
  for (let at = 0; at < size; at += CHUNK_BYTES) {
    const startedMs = performance.now();
    const bytes = new Uint8Array(Math.min(CHUNK_BYTES, size - at));
    const count = readSync(database, bytes, 0, bytes.length, at);
    // Another process may have made the file smaller, which the segments repeat.
    if (count === 0) break;
    const { body, chunk } = await encodeChunk(bytes.subarray(0, count));
    await upload(chunkKey(base, chunks.length), body);
    chunks.push(chunk);
    storedBytes += body.length;
    // Half of the time at most, because requests need the processor, the disk and the network, too.
    await Bun.sleep(performance.now() - startedMs);
  }
  return { chunks, storedBytes };
}

export function createBases(segments: SegmentWriter) {
  const { archive, beginning, log } = segments;
  const { storage, problems, progress, nowMs } = archive;
  const generation = beginning.generation.number;
  let { newest } = beginning;
  /** `segments.storedBytes` when the newest base was begun; 0 if it is of an earlier generation. */
  let startBytes = 0;

  /** Waits until the archive has this segment and all before it. @throws {AppError} unavailable if it ends before */
  async function untilStored(number: number): Promise<void> {
    for (;;) {
      if (log.isEnded()) fail("unavailable", "the archive was closed");
      if (log.stored() >= number) return;
      await Bun.sleep(POLL_MS);
    }
  }

  const upload = (key: string, body: Uint8Array<ArrayBuffer>) =>
    problems.retry("base", log.isEnded, () => storage.put(key, body));

  /**
   * The copy begins with the state before the first segment since the WAL was restarted, all of which is in the file,
   * and ends with a later state of it.
   */
  async function write(): Promise<void> {
    const number = segments.firstOfWal;
    // In an earlier generation.
    if (number === null) return;
    const startedMs = performance.now();
    const beforeBytes = segments.storedBytes;
    const id = { generation, number: Math.floor(nowMs() / 1000) };
    const copy = await copyFile(archive.files, id, upload);
    const reached = progress.read();
    // What was committed while the file was copied.
    while (!readAll(segments)) await untilStored(segments.lastRead.number);
    const { timeMs: lastMs, ...last } = segments.lastRead;
    await untilStored(last.number);
    // Never earlier than what it has, also if the clock goes back.
    const timeMs = Math.max(nowMs(), lastMs);
    const first = { generation, number };
    const base: Base = { ...id, first, last, timeMs, ...copy, progress: reached };
    await upload(baseKey(id), encodeJson(base));
    // Another server may have begun anew before it could see this base.
    if (!(await problems.retry("base", log.isEnded, log.isOpen))) return;
    newest = base;
    startBytes = beforeBytes;
    const bytes = copy.chunks.reduce((sum, chunk) => sum + chunk.bytes, 0);
    const seconds = Number(((performance.now() - startedMs) / 1000).toFixed(3));
    archive.log("info", "archive base written", { bytes, seconds });
    // What waited for it is confirmed.
    advance(segments);
  }

  function isDue(): boolean {
    if (newest === null) return true;
    const since = segments.storedBytes - startBytes;
    if (since > Math.max(MIN_BASE_BYTES, newest.storedBytes)) return true;
    return since > 0 && nowMs() - newest.timeMs > BASE_INTERVAL_MS;
  }

  return {
    /** `null` if the generation has begun with a base, which is not complete. */
    newest: (): Base | null => newest,
    /** Begins to write a base if one is due. It does not wait. */
    writeIfDue(): void {
      if (!log.isEnded() && isDue()) void problems.run("base", log.isEnded, write);
    },
  };
}
