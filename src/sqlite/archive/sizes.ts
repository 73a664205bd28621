/** Sizes of objects as they are stored: compressed. */
import type { ObjectStorage, StoredObject } from "../../object-storage.ts";
import type { NewestBase } from "./bases.ts";
import { type Base, chunkPrefix, LIST_BLOCK, parseSegmentKey, segmentBlock } from "./format.ts";

type Storage = Pick<ObjectStorage, "list">;

function sumOf(objects: readonly StoredObject[]): number {
  return objects.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** @returns the bytes of the segments behind a base, up to the end of a generation */
async function bytesSince(storage: Storage, { last }: Base, newest: number): Promise<number> {
  let bytes = 0;
  for (let { generation } = last; generation <= newest; generation += 1) {
    const first = generation === last.generation ? last.number + 1 : 1;
    for (let number = first; ; number += LIST_BLOCK) {
      const block = await storage.list(segmentBlock({ generation, number }));
      if (block.length === 0) break;
      bytes += sumOf(block.filter(({ key }) => (parseSegmentKey(key)?.number ?? 0) >= first));
    }
  }
  return bytes;
}

/** @param newest generation to measure */
export async function measure(storage: Storage, base: Base, newest: number): Promise<NewestBase> {
  const bytes = sumOf(await storage.list(chunkPrefix(base)));
  return { base, bytes, bytesSince: await bytesSince(storage, base, newest) };
}
