import { expect, test } from "bun:test";
import { parseJson } from "../src/json.ts";
import { expectThrown } from "./expect-error.ts";
import { makeRandom } from "./random.ts";

const MAX = Number.MAX_SAFE_INTEGER;
const nested = (depth: number, open: string, core: string, close: string) =>
  open.repeat(depth) + core + close.repeat(depth);

const values = [
  "{}",
  "[]",
  "null",
  "true",
  '""',
  " \t\r\n{ }\n",
  '{"a":1,"b":[1,2,{"a":null}],"c":{"a":false}}',
  '[{"a":1},{"a":2}]',
  '{"a":{"a":{"a":1}},"b":{"a":1}}',
  '{"a":"a","b":"a"}',
  '{"A":1,"a":2,"a ":3}',
  '{"":1," ":2}',
  '{"a:b":1,"a,b":2,"{":3,"[":4,"}":5,"]":6}',
  '{"a":"\\"b\\":","b":"\\\\"}',
  '{"\\\\":1,"\\"":2}',
  '"[[[[[[[[[[[[[[[[[[[["',
  '{"constructor":1,"toString":2,"hasOwnProperty":3}',
  '"\\ud83d\\ude00"',
  "-0",
  "1.5",
  "-2.5e-3",
  "1e400",
];

for (const text of values) {
  test(`parseJson agrees with JSON.parse when the text is ${text.trim()}`, () => {
    expect(parseJson(text)).toEqual(JSON.parse(text));
  });
}

function randomValue(random: (below: number) => number, depth: number): unknown {
  const texts = [
    "",
    "a",
    '"',
    "\\",
    "\\\\",
    "{",
    "]",
    ":",
    ",",
    "\n",
    "é",
    "😀",
    "\ud83d",
    "\0",
    "__proto__",
  ];
  const text = () => Array.from({ length: random(4) }, () => texts[random(texts.length)]).join("");
  switch (random(depth < 15 ? 9 : 6)) {
    case 0:
      return null;
    case 1:
      return random(2) === 0;
    case 2:
      return random(2 ** 31) - 2 ** 30;
    case 3:
      return (random(2 ** 31) - 2 ** 30) / 2 ** random(40);
    case 4:
      return random(2) === 0 ? MAX : -MAX;
    case 5:
      return text();
    case 6:
    case 7:
      return Array.from({ length: random(4) }, () => randomValue(random, depth + 1));
    default:
      return Object.fromEntries(
        Array.from({ length: random(5) }, () => [text(), randomValue(random, depth + 1)]),
      );
  }
}

test("parseJson agrees with JSON.parse when the values are random", () => {
  const random = makeRandom(20_261_120);
  for (let count = 0; count < 5000; count += 1) {
    const value = randomValue(random, 0);
    const text = JSON.stringify(value, null, random(2));
    const parsed = parseJson(text);
    // Also compared as text, because `toEqual` ignores the order of members.
    expect(JSON.stringify(parsed)).toBe(JSON.stringify(value));
    expect(parsed).toEqual(JSON.parse(text));
  }
});

test("parseJson creates a member, not a prototype, when the name is __proto__", () => {
  for (const text of ['{"__proto__":{"a":1}}', '{"__proto__":{"a":1.0}}']) {
    const value = parseJson(text) as object;
    expect(Object.keys(value)).toEqual(["__proto__"]);
    expect("a" in value).toBe(false);
  }
});

const malformed = [
  ..."|  |{|}|[|]|nul|undefined|NaN|Infinity|-|+1|01|.5|1.|1e|0x10|1_0|'a'|a|[1,]|[,]|{,}".split(
    "|",
  ),
  ...'{"a"}|{"a":}|{a:1}|{"a":1,}|{1:2}|{"a" "b":1}|["a":1]|"a":1|{:1}|[1 2]|{}{}|"a'.split("|"),
  '"\\x"',
  '"\\u12"',
  '"\\',
  '"a\nb"',
  '{"a\\":1}',
  '{"\\u12":1}',
  "\ufeff{}",
  "{}\0",
  "// a\n{}",
];

for (const text of malformed) {
  test(`parseJson rejects malformed text: ${JSON.stringify(text)}`, () => {
    expect(() => JSON.parse(text)).toThrow();
    expectThrown(() => parseJson(text), "invalid", "Validation failed: body must be valid JSON");
  });
}

const duplicates: [string, string][] = [
  ['{"a":1,"a":2}', "a"],
  ['{"a":1,"a":1}', "a"],
  ['{"a":1,"b":{"a":1},"a":2}', "a"],
  ['{"x":[{"b":1,"b":2}]}', "x[0].b"],
  ['{"x":[1,[2,3],{},{"a":{"b":[{"c":1},{"c":1,"c":2}]}}]}', "x[3].a.b[1].c"],
  ['[[{"a":1,"a":2}]]', "[0][0].a"],
  ['{"x":{"a":1,"a":2},"b":1,"b":2}', "x.a"],
  ['{"a":1,"\\u0061":2}', "a"],
  ['{"\\/":1,"/":2}', "/"],
  ['{"\\ud83d\\ude00":1,"😀":2}', "😀"],
  ['{"\\"":1,"\\u0022":2}', '"'],
  ['{"a" : 1 , "a" : 2}', "a"],
  ['{"__proto__":1,"__proto__":2}', "__proto__"],
  ['{"a":"a","b":":","a":1}', "a"],
  ['{"":1,"":2}', '""'],
];

for (const [text, name] of duplicates) {
  test(`parseJson rejects a duplicate member and names it: ${text}`, () => {
    const message = `Validation failed: ${name} is given more than once`;
    expectThrown(() => parseJson(text), "invalid", message);
  });
}

test("parseJson rejects text that is nested deeper than 16 levels", () => {
  const message = "Validation failed: body must not be nested deeper than 16 levels";
  for (const [open, close] of [
    ["[", "]"],
    ['{"a":', "}"],
  ] as const) {
    expect(parseJson(nested(16, open, "1", close))).toBeDefined();
    for (const depth of [17, 18, 5000]) {
      expectThrown(() => parseJson(nested(depth, open, "1", close)), "invalid", message);
    }
  }
  // Siblings do not add up.
  expect(parseJson(`[${nested(15, "[", "1", "]")},${nested(15, "[", "1", "]")}]`)).toBeDefined();
  expectThrown(() => parseJson(`[1,${nested(16, "[", "", "]")}]`), "invalid", message);
});

/** A literal, and the integer that it denotes. */
const integers: [string, number][] = [
  ["1.0", 1],
  ["1e0", 1],
  ["10E-1", 1],
  ["0.1e1", 1],
  ["1.50e+1", 15],
  ["-2.000", -2],
  ["100e-2", 1],
  ["0.0", 0],
  ["0e99", 0],
  ["0.00e-99", 0],
  ["9007199254740991", MAX],
  ["9007199254740991.0", MAX],
  ["9.007199254740991e15", MAX],
  ["-9007199254740991.00", -MAX],
  ["2251799813685249e0", 2 ** 51 + 1],
];

for (const [literal, expected] of integers) {
  test(`parseJson reads an integer when it is written ${literal}`, () => {
    expect(parseJson(`{"n":${literal}}`)).toEqual({ n: expected });
    expect(parseJson(literal)).toBe(expected);
  });
}

test("parseJson does not round a literal to an integer", () => {
  const literals = [
    "1.00000000000000000001",
    "0.99999999999999999999",
    "9007199254740991.4",
    "9007199254740990.5",
    "9007199254740990.9999",
    "-1.00000000000000000001",
    "1e-400",
    "1E-400",
    "100000000000000000001e-2",
    "0.1e-999999999999",
    `1.${"0".repeat(400)}1`,
    `${"9".repeat(300)}.5`,
  ];
  for (const literal of literals) {
    const parsed = parseJson(`{"n":[${literal}]}`) as { n: number[] };
    expect(Number.isSafeInteger(parsed.n[0]), literal).toBe(false);
  }
});

test("parseJson does not change text that looks like a number", () => {
  expect(parseJson('["1.00000000000000000001", "1e-400"]')).toEqual([
    "1.00000000000000000001",
    "1e-400",
  ]);
});
