import type { ObjectStorage } from "../../src/domain/object-storage.ts";

export function createMemoryStorage(
  objects = new Map<string, Uint8Array<ArrayBuffer>>(),
  url = "memory",
): ObjectStorage {
  return {
    url,
    get: async (key) => objects.get(key) ?? null,
    async put(key, body) {
      objects.set(key, body);
    },
    async create(key, body) {
      if (objects.has(key)) return false;
      objects.set(key, body);
      return true;
    },
    list: async (prefix, limit, after = "") =>
      [...objects]
        .filter(([key]) => key.startsWith(prefix) && key > after)
        .sort(([left], [right]) => (left < right ? -1 : 1))
        .slice(0, limit)
        .map(([key, body]) => ({ key, bytes: body.length })),
    async remove(keys) {
      for (const key of keys) if (objects.has(key)) objects.delete(key);
    },
  };
}
