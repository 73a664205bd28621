/** Copies the database file to the archive while it is in use, each time that a new copy is due. */
import { fail } from "../../../base/error.ts";
import type { ArchiveContext } from "../context.ts";
import { type Base, type Chunk, encodeChunk, encodeJson } from "../format.ts";
import { baseKey, chunkKey, isAtOrBefore, type ObjectId } from "../keys.ts";
import { advance, type GenerationWriter, readAll, timeOf } from "./segments.ts";

const CHUNK_BYTES = 4 * 2 ** 20;
/** A base is due when more than this, and more than its own size, was sent since: sizes of compressed objects. */
const MIN_BASE_BYTES = 64 * 2 ** 20;
const BASE_INTERVAL_MS = 24 * 60 * 60 * 1000;
/** Of bases that are due because the clock was ahead, so that a clock that two programs set does not cause many. */
const CLOCK_INTERVAL_MS = 10 * 60 * 1000;
const POLL_MS = 20;

/** Checkpoints run between two chunks. The segments have each page that they copy. */
async function copyFile(
  { database, machine }: ArchiveContext,
  base: ObjectId,
  upload: (key: string, body: Uint8Array<ArrayBuffer>) => Promise<void>,
): Promise<Pick<Base, "chunks" | "storedBytes">> {
  const size = database.fileBytes();
  const chunks: Chunk[] = [];
  let storedBytes = 0;
  for (let at = 0; at < size; at += CHUNK_BYTES) {
    const startedMs = machine.monotonicMs();
    const bytes = database.readFile(at, Math.min(CHUNK_BYTES, size - at));
    // Another process may have made the file smaller, which the segments repeat.
    if (bytes.length === 0) break;
    const { body, chunk } = await encodeChunk(bytes, machine);
    await upload(chunkKey(base, chunks.length), body);
    chunks.push(chunk);
    storedBytes += body.length;
    // Half of the time at most, because requests need the processor, the disk and the network, too.
    await machine.sleep(machine.monotonicMs() - startedMs);
  }
  return { chunks, storedBytes };
}

/** Waits until the archive has this segment and all before it. @throws {AppError} unavailable if it ends before */
async function untilStored({ archive, ownLog }: GenerationWriter, number: number): Promise<void> {
  for (;;) {
    if (ownLog.isEnded()) fail("unavailable", "the archive was closed");
    if (ownLog.stored() >= number) return;
    await archive.machine.sleep(POLL_MS);
  }
}

/** The copy begins with the state before the first segment of the WAL, which is all in the file, and ends with a later state. */
async function writeBase(writer: GenerationWriter): Promise<void> {
  const { archive, ownLog, heartbeat, firstOfWal: number, storedBytes, newestBase } = writer;
  const { storage, problems, progress, machine } = archive;
  const { generation } = writer.lastRead;
  // In an earlier generation.
  if (number === null) return;
  const upload = (key: string, body: Uint8Array<ArrayBuffer>) =>
    problems.retry("base", ownLog.isEnded, () => storage.put(key, body));
  const begunMs = machine.monotonicMs();
  if (wasAhead(writer)) writer.clockBaseMs = begunMs;
  // Keys are in the order of the bases, also if the clock has gone back.
  const before = newestBase?.generation === generation ? newestBase.number : 0;
  const id = { generation, number: Math.max(Math.floor(machine.nowMs() / 1000), before + 1) };
  const copy = await copyFile(archive, id, upload);
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
  if (!(await problems.retry("base", ownLog.isEnded, heartbeat.noteBase))) return;
  writer.newestBase = base;
  writer.baseStartBytes = storedBytes;
  writer.begunMs = begunMs;
  const bytes = copy.chunks.reduce((sum, chunk) => sum + chunk.bytes, 0);
  const seconds = Number(((machine.monotonicMs() - begunMs) / 1000).toFixed(3));
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
  const monotonicMs = archive.machine.monotonicMs();
  if (monotonicMs - writer.clockBaseMs >= CLOCK_INTERVAL_MS && wasAhead(writer)) return true;
  const since = storedBytes - baseStartBytes;
  if (since > Math.max(MIN_BASE_BYTES, newestBase.storedBytes)) return true;
  const ageMs =
    begunMs === null ? archive.machine.nowMs() - newestBase.timeMs : monotonicMs - begunMs;
  return since > 0 && ageMs > BASE_INTERVAL_MS;
}

/** Begins to write a base if one is due. It does not wait. */
export function writeBaseIfDue(writer: GenerationWriter): void {
  const { archive, ownLog } = writer;
  if (ownLog.isEnded() || !isDue(writer)) return;
  void archive.problems.run("base", ownLog.isEnded, () => writeBase(writer));
}
