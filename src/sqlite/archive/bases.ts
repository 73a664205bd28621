/** Copies the database file to the archive while it is in use, each time that a new copy is due. */
import { fstatSync, readSync } from "node:fs";
import { fail } from "../../base/error.ts";
import { isAtOrBefore } from "./catalog.ts";
import type { ArchiveContext } from "./context.ts";
import { type Base, type Chunk, encodeChunk, encodeJson } from "./format.ts";
import type { GenerationWriter } from "./generation-writer.ts";
import { baseKey, chunkKey, type SegmentId } from "./keys.ts";
import { advance, readAll, timeOf } from "./segments.ts";

const CHUNK_BYTES = 4 * 2 ** 20;
/**
 * A base is due when more than this, and more than its own size, was sent since the last one, or since the start. Both
 * are sizes of compressed objects.
 */
const MIN_BASE_BYTES = 64 * 2 ** 20;
const BASE_INTERVAL_MS = 24 * 60 * 60 * 1000;
/** Of bases that are due because the clock was ahead, so that a clock that two programs set does not cause many. */
const CLOCK_INTERVAL_MS = 10 * 60 * 1000;
const POLL_MS = 20;

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

/** Waits until the archive has this segment and all before it. @throws {AppError} unavailable if it ends before */
async function untilStored({ log }: GenerationWriter, number: number): Promise<void> {
  for (;;) {
    if (log.isEnded()) fail("unavailable", "the archive was closed");
    if (log.stored() >= number) return;
    await Bun.sleep(POLL_MS);
  }
}

/**
 * The copy begins with the state before the first segment since the WAL was restarted, all of which is in the file,
 * and ends with a later state of it.
 */
async function writeBase(writer: GenerationWriter): Promise<void> {
  const { archive, log, firstOfWal: number, storedBytes, newestBase } = writer;
  const { storage, problems, progress, nowMs } = archive;
  const { generation } = writer.lastRead;
  // In an earlier generation.
  if (number === null) return;
  const upload = (key: string, body: Uint8Array<ArrayBuffer>) =>
    problems.retry("base", log.isEnded, () => storage.put(key, body));
  const startedMs = performance.now();
  const begunMs = archive.clock.monotonicMs();
  if (wasAhead(writer)) writer.clockBaseMs = begunMs;
  // Keys are in the order of the bases, also if the clock has gone back.
  const before = newestBase?.generation === generation ? newestBase.number : 0;
  const id = { generation, number: Math.max(Math.floor(nowMs() / 1000), before + 1) };
  const copy = await copyFile(archive.files, id, upload);
  const reached = progress.read();
  // What was committed while the file was copied.
  while (!readAll(writer)) await untilStored(writer, writer.lastRead.number);
  const last = { generation, number: writer.lastRead.number };
  await untilStored(writer, last.number);
  const timeMs = timeOf(writer);
  const first = { generation, number };
  const base: Base = { ...id, first, last, timeMs, ...copy, progress: reached };
  await upload(baseKey(id), encodeJson(base));
  // Another server may have begun anew before it could see this base.
  if (!(await problems.retry("base", log.isEnded, log.isOpen))) return;
  writer.newestBase = base;
  writer.baseStartBytes = storedBytes;
  writer.begunMs = begunMs;
  const bytes = copy.chunks.reduce((sum, chunk) => sum + chunk.bytes, 0);
  const seconds = Number(((performance.now() - startedMs) / 1000).toFixed(3));
  archive.log("info", "archive base written", { bytes, seconds });
  // What waited for it is confirmed.
  advance(writer);
}

/** @returns whether the clock was ahead when the newest base or state was written */
function wasAhead(writer: GenerationWriter): boolean {
  const { newestBase, lastRead } = writer;
  if (newestBase === null) return false;
  const laterMs = isAtOrBefore(lastRead, newestBase.last) ? 0 : lastRead.timeMs;
  return timeOf(writer) < Math.max(newestBase.timeMs, laterMs);
}

function isDue(writer: GenerationWriter): boolean {
  const { archive, newestBase, storedBytes, baseStartBytes, begunMs } = writer;
  if (newestBase === null) return true;
  const monotonicMs = archive.clock.monotonicMs();
  if (monotonicMs - writer.clockBaseMs >= CLOCK_INTERVAL_MS && wasAhead(writer)) return true;
  const since = storedBytes - baseStartBytes;
  if (since > Math.max(MIN_BASE_BYTES, newestBase.storedBytes)) return true;
  const ageMs = begunMs === null ? archive.nowMs() - newestBase.timeMs : monotonicMs - begunMs;
  return since > 0 && ageMs > BASE_INTERVAL_MS;
}

/** Begins to write a base if one is due. It does not wait. */
export function writeBaseIfDue(writer: GenerationWriter): void {
  const { archive, log } = writer;
  if (log.isEnded() || !isDue(writer)) return;
  void archive.problems.run("base", log.isEnded, () => writeBase(writer));
}
