import { heapStats } from "bun:jsc";
import { expect, test } from "bun:test";
import { Type } from "@sinclair/typebox";
import fc from "fast-check";
import { parseJson } from "../../src/base/json.ts";
import { Text } from "../../src/base/schema.ts";
import { createValidator } from "../../src/base/validator.ts";
import { expectThrown } from "../support/expect-error.ts";

const nested = (depth: number, open: string, core: string, close: string) =>
  open.repeat(depth) + core + close.repeat(depth);

/** Texts that the random values below do not have. */
const values = [
  " \t\r\n{ }\n",
  '{"\\\\":1,"\\"":2,"a:b":1,"a,b":2,"{":3,"[":4,"}":5,"]":6}',
  '{"constructor":1,"toString":2,"hasOwnProperty":3}',
  '"[[[[[[[[[[[[[[[[[[[["',
  '"\\ud83d\\ude00"',
  '["1.5", ", 1.5", ":-0", "T03:04:05.678Z", "7e-0"]',
];

test.each(values)("parseJson agrees with JSON.parse when the text is %j", (text) => {
  expect(parseJson(text)).toEqual(JSON.parse(text));
});

const random = fc.anything({
  values: [fc.maxSafeInteger(), fc.string({ unit: "binary" }), fc.boolean(), fc.constant(null)],
  key: fc.oneof(fc.string({ unit: "binary" }), fc.constantFrom("__proto__", "a\\", '"')),
  maxDepth: 15,
});

test("parseJson agrees with JSON.parse when the values are random", () => {
  const property = fc.property(random, fc.nat(1), (value, space) => {
    const text = JSON.stringify(value, null, space);
    // Compared as text, because `toEqual` ignores the order of members.
    expect(JSON.stringify(parseJson(text))).toBe(JSON.stringify(JSON.parse(text)));
  });
  fc.assert(property, { seed: 20_261_120, numRuns: 2000 });
});

/** The parser decides, not the scan for duplicates. */
const malformed = [
  ..."|  |{|}|[|]|nul|NaN|+1|01|.5|1.|1e|a|[1,]|,|{,}|[}|[}]|{:1}|{}{}|{1:2}".split("|"),
  ...'{"a":NaN}|{"a"}|{"a":}|{a:1}|{"a":1,}|{"a" "b":1}|["a":1]|"a":1|"a|{"a\\":1}|"\\'.split("|"),
  ...['{"\\u12":1}', '"a\nb"', "\ufeff{}", "{}\0", "// a\n{}"],
];

test.each(malformed)("parseJson rejects malformed text: %j", (text) => {
  expect(() => JSON.parse(text)).toThrow();
  expectThrown(
    () => parseJson(text),
    "validation_failed",
    "Validation failed: body must be valid JSON",
  );
});

const duplicates: [string, string][] = [
  ['{"a":1,"a":2}', "a"],
  ['{"a":1,"b":{"a":1},"a":2}', "a"],
  ['{"a" :1,"a":2}', "a"],
  ['{"x":[1,[2,3],{},{"a":{"b":[{"c":1},{"c":1,"c":2}]}}]}', "x[3].a.b[1].c"],
  ['{"a":1,"\\u0061":2}', "a"],
  ['{"\\/":1,"/":2}', "/"],
  ['{"\\ud83d\\ude00":1,"😀":2}', "😀"],
  ['{"\\"":1,"\\u0022":2}', '"'],
  ['{"__proto__":1,"__proto__":2}', "__proto__"],
  ['{"":1,"":2}', '""'],
];

test.each(duplicates)("parseJson rejects a duplicate member and names it: %s", (text, name) => {
  const message = `Validation failed: ${name} is given more than once`;
  expectThrown(() => parseJson(text), "validation_failed", message);
});

test("parseJson rejects text with more than 2,500 members or commas", () => {
  const members = Array.from({ length: 2_499 }, (_, at) => `{"${at}":${at}}`).join(",");
  const zeros = "0,".repeat(2_500);
  for (const [what, most, more] of [
    ["members", `{"all":[${members}]}`, `{"all":[${members},{"":1}]}`],
    ["commas", `[${zeros}",,"]`, `[${zeros}0,0]`],
  ] as const) {
    expect(parseJson(most)).toBeDefined();
    const message = `Validation failed: body must have at most 2500 ${what}`;
    expectThrown(() => parseJson(more), "validation_failed", message);
  }
});

test("parseJson rejects text that is nested deeper than 16 levels", () => {
  const message = "Validation failed: body must not be nested deeper than 16 levels";
  for (const [open, close] of [
    ["[", "]"],
    ['{"a":', "}"],
  ] as const) {
    expect(parseJson(nested(16, open, "1", close))).toBeDefined();
    for (const depth of [17, 18, 5000]) {
      expectThrown(() => parseJson(nested(depth, open, "1", close)), "validation_failed", message);
    }
  }
  // Siblings do not add up.
  expect(parseJson(`[${nested(15, "[", "1", "]")},${nested(15, "[", "1", "]")}]`)).toBeDefined();
  expectThrown(() => parseJson(`[1,${nested(16, "[", "", "]")}]`), "validation_failed", message);
});

test.each([
  ..."5.00 1.0 1e3 1E+3 0.1e1 120e-1 0e-5 -0.0 -1.5 1e-400 1e400 -2.5e-3".split(" "),
  ...["9007199254740991.4", "0.99999999999999999999", `1.${"0".repeat(400)}1`],
])("parseJson returns NaN when a number has a fraction or an exponent: %s", (text) => {
  for (const spaced of [text, ` ${text} `, `\n${text}`]) {
    expect(parseJson(spaced)).toBeNaN();
    expect(parseJson(`{"a":[${spaced},1,${spaced}],"b" :${spaced}}`)).toEqual({
      ...{ a: [Number.NaN, 1, Number.NaN], b: Number.NaN },
    });
  }
});

test("parseJson returns 0 when a zero has a sign", () => {
  for (const text of ['{"a":-0,"b":[-0,\n-0]}', '{"a" : -0,"b" : [ -0, 0]}'])
    expect(Bun.deepEquals(parseJson(text), { a: 0, b: [0, 0] }, true)).toBe(true);
  expect(Object.is(parseJson("-0"), 0)).toBe(true);
});

const MANY = 10_000;
const longText = Type.Object({ text: Text({ maxLength: MANY }) });
const validate = createValidator(longText);
const value = { text: "😀".repeat(MANY) };

const strings = () => heapStats().objectTypeCounts["string"] ?? 0;

// One body would delay all other requests, and leave much garbage.
test.each([
  ["valid", () => parseJson(`["${"ж".repeat(MANY)}"]`)],
  ["malformed", () => parseJson("ж".repeat(MANY))],
  ["validated", () => validate(value)],
])("a text allocates no string for each of its characters when it is %s", (_what, work) => {
  const quietly = () => {
    try {
      work();
    } catch {}
  };
  quietly();
  Bun.gc(true);
  const before = strings();
  quietly();
  // Also those that are garbage already.
  expect(strings() - before).toBeLessThan(MANY / 2);
});
