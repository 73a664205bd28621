import type { ObjectStorage, TaggedObject } from "../../src/domain/object-storage.ts";

/** Storage in memory, whose tags are hashes of the body as on S3. */
export function createMemoryStorage(nowMs: () => number = Date.now): ObjectStorage {
  const objects = new Map<string, TaggedObject & { readonly modifiedMs: number }>();

  function store(key: string, body: Uint8Array<ArrayBuffer>): string {
    const tag = `"${new Bun.CryptoHasher("md5").update(body).digest("hex")}"`;
    objects.set(key, { body, tag, modifiedMs: nowMs() });
    return tag;
  }

  return {
    url: "memory",
    async get(key) {
      const found = objects.get(key);
      return found === undefined ? null : { body: found.body, tag: found.tag };
    },
    async put(key, body) {
      store(key, body);
    },
    create: async (key, body) => (objects.has(key) ? null : store(key, body)),
    replace: async (key, body, tag) => (objects.get(key)?.tag === tag ? store(key, body) : null),
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
