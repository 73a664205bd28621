import { expect, test } from "bun:test";
import type { ObjectStorage } from "../../src/domain/object-storage.ts";

/** `other` has the same objects, as another process sees them. */
type OpenStorage = AsyncDisposable & Readonly<Record<"storage" | "other", ObjectStorage>>;

export function bytes(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text);
}

export function text(body: Uint8Array | null): string | null {
  return body === null ? null : new TextDecoder().decode(body);
}

/** @param conditionalWrites `false` for a server that ignores preconditions */
export function objectStorageContract(open: () => Promise<OpenStorage>, conditionalWrites = true) {
  test("get returns what put has written byte for byte, also for another process", async () => {
    await using opened = await open();
    const { storage, other } = opened;
    expect(await storage.get("a/b")).toBeNull();
    const large = crypto.getRandomValues(new Uint8Array(65_536));
    const bodies = [bytes("one"), new Uint8Array(), large, new Uint8Array(3 * 2 ** 20).fill(0x0a)];
    for (const body of bodies) {
      await storage.put("a/b", body);
      for (const each of [storage, other])
        expect(Buffer.compare((await each.get("a/b"))!, body)).toBe(0);
    }
    await other.put("a/b", bytes("two"));
    expect(text(await storage.get("a/b"))).toBe("two");
  });

  test("list returns the objects below a prefix, sorted by key, with size and time", async () => {
    await using opened = await open();
    const { storage, other } = opened;
    expect(await storage.list("")).toEqual([]);
    const words = "log/00000002 log/00000010 log/00000001 log.old/1 base_1=2-x a/b/c/d";
    const keys = words.split(" ");
    for (const key of keys) await storage.put(key, bytes(key));
    const keysOf = async (prefix: string) => (await other.list(prefix)).map(({ key }) => key);
    expect(await keysOf("")).toEqual([...keys].sort());
    expect(await keysOf("log/")).toEqual(["log/00000001", "log/00000002", "log/00000010"]);
    expect(await keysOf("log/0000000")).toEqual(["log/00000001", "log/00000002"]);
    expect(await keysOf("log")).toHaveLength(4);
    expect(await keysOf("none/")).toEqual([]);
    const [object] = await other.list("a/");
    expect(object).toEqual({ key: "a/b/c/d", bytes: 7 });
  });

  test("list returns every object when there are more than fit on a page", async () => {
    await using opened = await open();
    const keys = Array.from({ length: 25 }, (_, index) => `many/${String(index).padStart(4, "0")}`);
    await Promise.all(keys.map((key) => opened.storage.put(key, bytes(key))));
    expect((await opened.storage.list("many/")).map(({ key }) => key)).toEqual(keys);
    for (const limit of [1, 7, 25, 26]) {
      const some = await opened.storage.list("many/00", limit, "", 2);
      expect(some.length).toBe(Math.min(limit, keys.length));
      expect(keys).toEqual(expect.arrayContaining(some.map(({ key }) => key)));
    }
    for (const limit of [undefined, 5]) {
      const later = await opened.storage.list("many/", limit, "many/0007");
      expect(later.map(({ key }) => key)).toEqual(keys.slice(8, limit && 8 + limit));
    }
  });

  test("remove deletes only these objects, and ignores those that do not exist", async () => {
    await using opened = await open();
    const { storage, other } = opened;
    const keys = Array.from({ length: 20 }, (_, index) => `gone/${index}`);
    for (const key of [...keys, "kept"]) await storage.put(key, bytes(key));
    await storage.remove([...keys, "never"]);
    expect((await other.list("")).map(({ key }) => key)).toEqual(["kept"]);
    expect(await other.get("gone/7")).toBeNull();
    await storage.remove([]);
  });
  if (!conditionalWrites) return;

  test("create does nothing when the object exists, also for one of many at the same time", async () => {
    await using opened = await open();
    const { storage, other } = opened;
    expect(await storage.create("a", bytes("one"))).toBeTrue();
    expect(await other.create("a", bytes("two"))).toBeFalse();
    expect(text(await other.get("a"))).toBe("one");
    await storage.put("plain", bytes("one"));
    expect(await other.create("plain", bytes("two"))).toBeFalse();
    await storage.remove(["a"]);
    for (let round = 0; round < 5; round++) {
      const callers = Array.from({ length: 8 }, (_, index) => (index % 2 === 0 ? storage : other));
      const created = await Promise.all(
        callers.map((caller, index) => caller.create(`race/${round}`, bytes(`${index}`))),
      );
      expect(created.filter(Boolean)).toHaveLength(1);
      expect(text(await storage.get(`race/${round}`))).toBe(`${created.indexOf(true)}`);
    }
    expect(await other.create("a", bytes("three"))).toBeTrue();
  });
}
