import { expect, test } from "bun:test";
import { encrypted } from "../../src/object-storage/encrypted.ts";
import { expectRejection, expectThrown } from "../support/expect-error.ts";
import { bytes, text } from "./contract.ts";
import { createMemoryStorage } from "./memory.ts";

const ARCHIVE_KEY = "5f".repeat(32);
const secret = "ann@example.com";

test("objects are encrypted, each time in another way, and read with their key alone if nothing was changed", async () => {
  const plain = createMemoryStorage();
  const storage = encrypted(plain, { ARCHIVE_KEY });
  await storage.put("a", bytes(secret));
  expect(await storage.create("b", bytes(secret))).toBeTrue();
  expect(await storage.create("b", bytes("other"))).toBeFalse();
  const [a, b] = [await plain.get("a"), await plain.get("b")];
  expect(Buffer.from(a ?? []).includes(secret)).toBeFalse();
  expect(a).not.toEqual(b);
  // A part cannot be verified.
  for (const name of ["a", "b"]) expect(text(await storage.get(name, 1))).toBe(secret);
  expect(await storage.get("c")).toBeNull();
  const other = encrypted(plain, { ARCHIVE_KEY: "a0".repeat(32) });
  const wrong = "it is encrypted with another key than ARCHIVE_KEY";
  await expectRejection(other.get("a"), "operator", wrong);
  const missing = "it is encrypted, and ARCHIVE_KEY is not set";
  await expectRejection(encrypted(plain, {}).get("a"), "operator", missing);
  await plain.put("d", bytes(secret));
  const unencrypted = "d is not encrypted, and ARCHIVE_KEY is set";
  await expectRejection(storage.get("d"), "operator", unencrypted);
  // An object that was changed, cut, or put in the place of another one is empty.
  const body = a ?? new Uint8Array();
  for (let at = 21; at < body.length; at += 1) {
    const changed = body.slice();
    changed[at] = (changed[at] ?? 0) ^ 1;
    await plain.put("a", changed);
    expect(text(await storage.get("a"))).toBe("");
    await plain.put("a", body.slice(0, at));
    expect(text(await storage.get("a"))).toBe("");
  }
  await plain.put("b", body);
  expect(text(await storage.get("b"))).toBe("");
});

test.each(["", "5f", "zz".repeat(32)])("a key of %p is rejected unless it is empty", (key) => {
  const openWith = () => encrypted(createMemoryStorage(), { ARCHIVE_KEY: key });
  const problem = "Invalid ARCHIVE_KEY: must be 64 hex digits";
  if (key === "") openWith();
  else expectThrown(openWith, "operator", problem);
});
