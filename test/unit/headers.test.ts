import { expect, test } from "bun:test";
import {
  readIdempotencyKey,
  readPreconditions,
  requireIdempotencyKey,
} from "../../src/http/preconditions.ts";
import { matchesIfNoneMatch, requireMatch } from "../../src/precondition.ts";
import { expectThrown } from "../expect-error.ts";

test("`readIdempotencyKey` returns the key with its owner and fingerprint when there is one", () => {
  expect(readIdempotencyKey(undefined, "owner", "/a", {})).toBeNull();
  for (const key of ["a", "!~", "~".repeat(255)]) {
    expect(readIdempotencyKey(key, "owner", "/a", {})).toMatchObject({ owner: "owner", key });
  }
  const prints = [{ a: 1 }, { a: 2 }].map(
    (body) => readIdempotencyKey("a", "o", "/a", body)?.fingerprint,
  );
  expect(new Set(prints).size).toBe(2);
  expect(readIdempotencyKey("other", "other", "/a", { a: 1 })?.fingerprint).toBe(prints[0] ?? "");
});

test("`requireIdempotencyKey` rejects a key when it is not 1 to 255 visible ASCII characters", () => {
  for (const key of [null, "a", "!~", "~".repeat(255)]) requireIdempotencyKey(key);
  const message = "Validation failed: Idempotency-Key must be 1 to 255 visible ASCII characters";
  for (const key of ["", " ", "a b", "\t", "\x7f", "é", "a\n", "a".repeat(256)]) {
    expectThrown(() => requireIdempotencyKey(key), "invalid", message);
  }
});

/** A header value → whether it matches version 3 as `If-Match`, and as `If-None-Match`. */
const tags: [value: string | undefined, if_match: boolean, if_none_match: boolean][] = [
  [undefined, true, false],
  ["*", true, true],
  [" * ", true, true],
  ['"3"', true, true],
  ['"2"', false, false],
  ['"1", "3"', true, true],
  ['"1","3"', true, true],
  [', "3",,"4" ,', true, true],
  ['W/"3"', false, true],
  ['W/"3", "4"', false, true],
  ['"a,b", "3"', true, true],
  ['"03"', false, false],
  ['"+3"', false, false],
  ['"3.0"', false, false],
  ['""', false, false],
  ['"\xe9"', false, false],
];

for (const [value, if_match, if_none_match] of tags) {
  test(`\`readPreconditions\` reads the entity tags when the value is ${value}`, () => {
    const match = () => requireMatch({ version: 3 }, readPreconditions(value, undefined));
    if (if_match) match();
    else expectThrown(match, "version_mismatch");
    const preconditions = readPreconditions(null, value);
    expect(matchesIfNoneMatch({ version: 3 }, preconditions)).toBe(if_none_match);
  });
}

test("`readPreconditions` rejects a value when it is not a list of entity tags", () => {
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
    expectThrown(
      () => readPreconditions(value, undefined),
      "invalid",
      `Validation failed: If-Match ${rule}`,
    );
    expectThrown(
      () => readPreconditions(undefined, value),
      "invalid",
      `Validation failed: If-None-Match ${rule}`,
    );
  }
});
