/** Copies the database file to the archive while it is in use. */
import { fstatSync, readSync } from "node:fs";
import type { ObjectStorage } from "../../object-storage.ts";
import { type Base, baseKey, type Chunk, chunkKey, encodeChunk, encodeJson } from "./format.ts";
import type { Retry, SegmentWriter } from "./segments.ts";

const CHUNK_BYTES = 4 * 2 ** 20;

export interface BaseOptions {
  readonly storage: Pick<ObjectStorage, "put">;
  readonly retry: Retry;
  readonly generation: number;
  readonly segments: SegmentWriter;
  /** Descriptor of the database file. Closing one would release SQLite's locks on the file. */
  readonly database: number;
  readonly nowMs: () => number;
  /** Resolves when the archive has this segment and all before it. */
  readonly untilStored: (number: number) => Promise<void>;
}

/** Checkpoints run between two chunks. The segments have each page that they copy. */
async function copyFile(base: Pick<Base, "generation" | "number">, options: BaseOptions) {
  const { storage, retry, database } = options;
  const { size } = fstatSync(database);
  const chunks: Chunk[] = [];
  for (let at = 0; at < size; at += CHUNK_BYTES) {
    const startedMs = performance.now();
    const bytes = new Uint8Array(Math.min(CHUNK_BYTES, size - at));
    const count = readSync(database, bytes, 0, bytes.length, at);
    // Another process may have made the file smaller, which the segments repeat.
    if (count === 0) break;
    const { body, chunk } = await encodeChunk(bytes.subarray(0, count));
    const key = chunkKey(base, chunks.length);
    await retry(() => storage.put(key, body));
    chunks.push(chunk);
    // Half of the time at most, because requests need the processor, the disk and the network, too.
    await Bun.sleep(performance.now() - startedMs);
  }
  return chunks;
}

/**
 * The copy begins with the state before the first segment since the log was restarted, all of which is in the file, and
 * ends with a later state of it.
 * @returns the base; `null` if this generation does not have that segment
 */
export async function writeBase(options: BaseOptions): Promise<Base | null> {
  const { storage, retry, generation, segments, nowMs, untilStored } = options;
  const number = segments.firstOfLog();
  if (number === null) return null;
  const id = { generation, number: Math.floor(nowMs() / 1000) };
  const chunks = await copyFile(id, options);
  // What was committed while the file was copied.
  while (!segments.readAll()) {
    segments.send();
    await untilStored(segments.lastRead());
  }
  const last = { generation, number: segments.lastRead() };
  segments.send();
  await untilStored(last.number);
  // Never earlier than what it has, also if the clock goes back.
  const timeMs = Math.max(nowMs(), segments.lastTimeMs());
  const base: Base = { ...id, first: { generation, number }, last, timeMs, chunks };
  await retry(() => storage.put(baseKey(id), encodeJson(base)));
  return base;
}
