import type { ObjectStorage } from "../../src/domain/object-storage.ts";

export function createMemoryStorage(nowMs: () => number = Date.now): ObjectStorage {
  const objects = new Map<string, { body: Uint8Array<ArrayBuffer>; modifiedMs: number }>();
  return {
    url: "memory",
    get: async (key) => objects.get(key)?.body ?? null,
    async put(key, body) {
      objects.set(key, { body, modifiedMs: nowMs() });
    },
    async create(key, body) {
      if (objects.has(key)) return false;
      objects.set(key, { body, modifiedMs: nowMs() });
      return true;
    },
    list: async (prefix, limit, after = "") =>
      [...objects]
        .filter(([key]) => key.startsWith(prefix) && key > after)
        .sort(([left], [right]) => (left < right ? -1 : 1))
        .slice(0, limit)
        .map(([key, { body, modifiedMs }]) => ({ key, bytes: body.length, modifiedMs })),
    async remove(keys) {
      for (const key of keys) objects.delete(key);
    },
  };
}
