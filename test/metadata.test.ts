import { expect, test } from "bun:test";
import { type MetadataPatch, patchMetadata } from "../src/metadata.ts";
import { expectThrown } from "./expect-error.ts";

const current = { a: "1", b: "2" };
const countKeys = (count: number, prefix = "k") =>
  Object.fromEntries(Array.from({ length: count }, (_, at) => [`${prefix}${at}`, "v"]));

const patches: [string, MetadataPatch | undefined, Record<string, string>][] = [
  ["is absent", undefined, { a: "1", b: "2" }],
  ["is null", null, {}],
  ["is empty", {}, { a: "1", b: "2" }],
  ["adds a key", { c: "3" }, { a: "1", b: "2", c: "3" }],
  ["replaces a value", { a: "9" }, { a: "9", b: "2" }],
  ["has empty text", { a: "" }, { a: "", b: "2" }],
  ["removes a key", { a: null }, { b: "2" }],
  ["removes a key that is not there", { z: null }, { a: "1", b: "2" }],
  ["does all at once", { a: null, b: "9", c: "3" }, { b: "9", c: "3" }],
];

for (const [what, patch, expected] of patches) {
  test(`patchMetadata merges according to RFC 7396 when the patch ${what}`, () => {
    expect(patchMetadata(current, patch)).toEqual(expected);
    expect(current).toEqual({ a: "1", b: "2" });
  });
}

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
  expectThrown(() => patchMetadata(full, { other: "x" }), "invalid", message);
  expectThrown(() => patchMetadata({}, countKeys(51, "n")), "invalid", message);
});
