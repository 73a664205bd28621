import { expect, test } from "bun:test";
import { AppError } from "../../../src/base/error.ts";
import type { ObjectStorage } from "../../../src/domain/object-storage.ts";
import { type Base, encodeJson } from "../../../src/sqlite/archive/format.ts";
import * as keys from "../../../src/sqlite/archive/keys.ts";
import { deleteExpired } from "../../../src/sqlite/archive/write/retention.ts";
import { bytes } from "../../object-storage/contract.ts";
import { createMemoryStorage } from "../../object-storage/memory.ts";
import { keysOf, recordOf } from "./archived.ts";

const NOW_MS = Date.parse("2026-11-01T00:00:00Z");
const EMPTY = bytes("");

/** Storage in memory, which counts how many objects a call is about. */
function makeStorage() {
  const storage = createMemoryStorage();
  let largest = 0;
  let removals = Number.POSITIVE_INFINITY;
  return {
    ...storage,
    largest: () => largest,
    /** Calls that delete something fail after this many. */
    allowRemovals(count: number) {
      removals = count;
    },
    async list(...args: Parameters<ObjectStorage["list"]>) {
      const listed = await storage.list(...args);
      largest = Math.max(largest, listed.length);
      return listed;
    },
    async remove(keys: readonly string[]) {
      if (keys.length === 0) return;
      if (removals === 0) throw new AppError("unavailable", "the storage is away");
      removals -= 1;
      await storage.remove(keys);
    },
    /** @param end of the log of the generation before, which gets a seal */
    async addGeneration(number: number, segments: number, end = 0) {
      const parent = number > 1 ? { generation: number - 1, number: end } : null;
      const record = recordOf(number, { previousEnd: end, parent });
      await storage.put(keys.generationKey(number), encodeJson(record));
      await storage.put(keys.heartbeatKey(number), EMPTY);
      for (let at = 1; at <= segments; at += 1)
        await storage.put(keys.slotKey({ generation: number, number: at }), EMPTY);
      // What is in a slot does not matter to the retention.
      if (number > 1)
        await storage.put(keys.slotKey({ generation: number - 1, number: end + 1 }), EMPTY);
    },
    async addBase(generation: number, number: number, segment: number) {
      const id = { generation, number: segment };
      const content = { chunks: [], storedBytes: 0, progress: null };
      const timeMs = NOW_MS + number;
      const base: Base = { generation, number, first: id, last: id, timeMs, ...content };
      await storage.put(keys.baseKey(base), encodeJson(base));
    },
    /** Not counted. */
    keys: (prefix: string) => keysOf(storage, prefix),
    async slots(): Promise<string[]> {
      const ids = (await keysOf(storage, "log/"))
        .map((key) => keys.parseKey(key))
        .filter((id) => id !== null);
      return ids.map(({ generation, number }) => `${generation}/${number}`);
    },
  };
}

test("the slots of a block are in a separate directory", () => {
  const id: keys.ObjectId = { generation: 2, number: 1_234_567 };
  const key = "log/00000002/0001234/0001234567";
  expect(keys.slotKey(id)).toBe(key);
  expect(keys.parseKey(key)).toEqual(id);
  for (const other of ["log/00000002/0001235/0001234567", "log/2/0001234/0001234567"])
    expect(keys.parseKey(other)).toBeNull();
});

test("segments are deleted page by page, and seals, records and what is needed are not", async () => {
  const storage = makeStorage();
  await storage.addGeneration(1, 2500);
  await storage.addGeneration(2, 0, 2500);
  await storage.addGeneration(3, 1500, 0);
  await storage.addGeneration(4, 4100, 1500);
  await storage.addBase(4, 1, 2500);
  for (let round = 0; round < 2; round += 1) {
    await deleteExpired(storage, NOW_MS + 1);
    const kept = Array.from({ length: 1601 }, (_, at) => `4/${2500 + at}`);
    expect(await storage.slots()).toEqual(["1/2501", "2/1", "3/1501", ...kept]);
  }
  expect(await storage.keys("generations/")).toHaveLength(4);
  expect(await storage.keys("heartbeats/")).toEqual([keys.heartbeatKey(4)]);
  expect(storage.largest()).toBe(1000);
});

test("no segment is left when the deletion was interrupted", async () => {
  for (let removals = 0; removals < 6; removals += 1) {
    const storage = makeStorage();
    await storage.addGeneration(1, 4100);
    await storage.addBase(1, 1, 2500);
    storage.allowRemovals(removals);
    await deleteExpired(storage, NOW_MS + 1).catch(() => {});
    await storage.addBase(1, 2, 4000);
    storage.allowRemovals(Number.POSITIVE_INFINITY);
    await deleteExpired(storage, NOW_MS + 2);
    expect(await storage.slots()).toHaveLength(101);
  }
});

test("the chunks of older bases are deleted page by page, also of one that was never completed", async () => {
  const storage = makeStorage();
  await storage.addGeneration(1, 1);
  for (const complete of [2, 4]) await storage.addBase(1, complete, 1);
  for (const number of [1, 2, 3, 4, 5])
    for (let chunk = 0; chunk < 1500; chunk += 1)
      await storage.put(keys.chunkKey({ generation: 1, number }, chunk), EMPTY);
  await deleteExpired(storage, NOW_MS);
  expect(await storage.keys("chunks/")).toHaveLength(7500);
  await deleteExpired(storage, NOW_MS + 4);
  const left = await storage.keys("chunks/");
  expect(left).toHaveLength(3000);
  expect(left[0]).toStartWith("chunks/00000001-0000000004/");
  expect(storage.largest()).toBe(1000);
});

test("what an older base needs is kept while the manifest of a newer one is damaged", async () => {
  const storage = makeStorage();
  await storage.addGeneration(1, 20);
  for (const number of [1, 2]) await storage.addBase(1, number, 5 * number);
  await storage.put(keys.baseKey({ generation: 1, number: 2 }), EMPTY);
  await deleteExpired(storage, Number.POSITIVE_INFINITY);
  expect(await storage.slots()).toHaveLength(16);
});
