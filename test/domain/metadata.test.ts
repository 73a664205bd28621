import { expect, test } from "bun:test";
import { patchMetadata } from "../../src/domain/metadata.ts";
import { expectThrown } from "../support/expect-error.ts";

const current = { a: "1", b: "2" };
const countKeys = (count: number, prefix = "k") =>
  Object.fromEntries(Array.from({ length: count }, (_, at) => [`${prefix}${at}`, "v"]));

test("patchMetadata creates a member when the key is __proto__", () => {
  const patched = patchMetadata(current, JSON.parse('{"__proto__": "x", "constructor": "y"}'));
  expect(JSON.stringify(patched)).toBe('{"a":"1","b":"2","__proto__":"x","constructor":"y"}');
  expect(Object.getPrototypeOf(patched)).toBe(Object.prototype);
  const without = patchMetadata(patched, JSON.parse('{"__proto__": null}'));
  expect(JSON.stringify(without)).toBe('{"a":"1","b":"2","constructor":"y"}');
});

test("patchMetadata counts the entries of the result when the patch adds some", () => {
  const full = countKeys(50);
  expect(Object.keys(patchMetadata(full, { k0: null, other: "x" }))).toHaveLength(50);
  expect(patchMetadata(full, { k0: "other" })).toMatchObject({ k0: "other" });
  expect(patchMetadata(full, { z: null })).toEqual(full);
  const message = "Validation failed: metadata must be an object of at most 50 entries";
  expectThrown(() => patchMetadata(full, { other: "x" }), "validation_failed", message);
  expectThrown(() => patchMetadata({}, countKeys(51, "n")), "validation_failed", message);
});
