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

/** @param around makes each call. @returns a storage whose calls are made like this, e.g. those of `get a/b` */
export function wrapStorage(
  { url, get, put, create, list, remove }: ObjectStorage,
  around: <Result>(call: () => Promise<Result>, operation: string, key: string) => Promise<Result>,
): ObjectStorage {
  return {
    url,
    get: (...given) => around(() => get(...given), "get", given[0]),
    put: (...given) => around(() => put(...given), "put", given[0]),
    create: (...given) => around(() => create(...given), "create", given[0]),
    list: (...given) => around(() => list(...given), "list", given[0]),
    remove: (keys) => around(() => remove(keys), "remove", keys.join()),
  };
}
