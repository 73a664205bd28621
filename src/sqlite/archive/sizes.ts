/** Sizes of objects as they are stored: compressed. */
import type { ObjectStorage, StoredObject } from "../../object-storage.ts";
import { type Base, chunkPrefix, LIST_BLOCK, parseSegmentKey, segmentBlock } from "./format.ts";

type Storage = Pick<ObjectStorage, "list">;

function sumOf(objects: readonly StoredObject[]): number {
  return objects.reduce((sum, { bytes }) => sum + bytes, 0);
}

export async function storedBytesOf(storage: Storage, base: Base): Promise<number> {
  return sumOf(await storage.list(chunkPrefix(base)));
}

/** @returns the bytes of the segments behind a base, up to the end of a generation */
export async function storedBytesSince(
  storage: Storage,
  { last }: Base,
  newest: number,
): Promise<number> {
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
