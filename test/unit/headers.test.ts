import { expect, test } from "bun:test";
import { keyFor, readIfMatch, readIfNoneMatch } from "../../src/http/params.ts";
import { refusalOf } from "../refusal.ts";

test("`keyFor` is the key with its owner and fingerprint when the client sent one", () => {
  expect(keyFor(undefined, "owner", "/a", {})).toBeNull();
  for (const key of ["a", "!~", "~".repeat(255)]) {
    expect(keyFor(key, "owner", "/a", {})).toMatchObject({ owner: "owner", key });
  }
  const prints = [{ a: 1 }, { a: 2 }].map((body) => keyFor("a", "o", "/a", body)?.fingerprint);
  expect(new Set(prints).size).toBe(2);
  expect(keyFor("other", "other", "/a", { a: 1 })?.fingerprint).toBe(prints[0] ?? "");
});

test("`keyFor` refuses a key when it is not 1 to 255 visible ASCII characters", () => {
  const message = "Validation failed: Idempotency-Key must be 1 to 255 visible ASCII characters";
  for (const key of ["", " ", "a b", "\t", "\x7f", "é", "a\n", "a".repeat(256)]) {
    refusalOf(() => keyFor(key, "owner", "/a", {}), "invalid", message);
  }
});

/** A header value → what `If-Match` accepts; whether `If-None-Match` has version 3. */
const tags: [string | undefined, (number | null)[] | null, boolean][] = [
  [undefined, null, false],
  ["*", null, true],
  [" * ", null, true],
  ['"3"', [3], true],
  ['"2"', [2], false],
  ['"1", "3"', [1, 3], true],
  ['"1","3"', [1, 3], true],
  [', "3",,"4" ,', [3, 4], true],
  ['W/"3"', [], true],
  ['W/"3", "4"', [4], true],
  ['"a,b", "3"', [null, 3], true],
  ['"03"', [null], false],
  ['"+3"', [null], false],
  ['"3.0"', [null], false],
  ['""', [null], false],
  ['"\xe9"', [null], false],
];

for (const [value, versions, has] of tags) {
  test(`\`If-Match\` and \`If-None-Match\` are read when the value is ${value}`, () => {
    const accepted = readIfMatch(value)?.map((version) => (Number.isNaN(version) ? null : version));
    expect(accepted ?? null).toEqual(versions);
    expect(readIfNoneMatch(value)(3)).toBe(has);
  });
}

test("`If-Match` and `If-None-Match` are refused when they are no list of entity tags", () => {
  const others = [
    "",
    " ",
    ",",
    "3",
    "'3'",
    '"3',
    '3"',
    'w/"3"',
    'W/ "3"',
    "W/3",
    '*, "3"',
    '"3" x',
    '"a b"',
    "**",
  ];
  for (const value of others) {
    const rule = "must be * or a list of entity tags";
    refusalOf(() => readIfMatch(value), "invalid", `Validation failed: If-Match ${rule}`);
    refusalOf(
      () => readIfNoneMatch(value)(3),
      "invalid",
      `Validation failed: If-None-Match ${rule}`,
    );
  }
});
