// Texts of 64 KB that would take a quadratic parser a second each, twenty times as long as the tests may take.
import { expect, test } from "bun:test";
import { parseJson } from "../src/json.ts";
import { isEmail } from "../src/schema.ts";

const SIZE = 65_536;
const ROUNDS = 20;
/** Linear parsers take at most 0.4 s for all rounds. */
const TIMEOUT_MS = ROUNDS * 250;
const fill = (text: string) => text.repeat(Math.floor(SIZE / text.length));

const names = Array.from({ length: 8000 }, (_, at) => `"${at}":1`).join(",");

const texts: [string, string][] = [
  ["one long string", `"${fill("a")}"`],
  ["an open string", `"${fill("a")}`],
  ["quotes", fill('"')],
  ["backslashes", `"${fill("\\")}`],
  ["escapes", `"${fill("\\u0061")}"`],
  ["brackets", fill("[")],
  ["braces", fill("{")],
  ["closing brackets", fill("]")],
  ["sibling brackets", `[${fill("[],")}[]]`],
  ["colons", fill(":")],
  ["colons after a long string", `["${"a".repeat(SIZE / 2)}"${":".repeat(SIZE / 2)}`],
  ["colons after many escapes", `["${"\\u0061".repeat(5400)}"${":".repeat(SIZE / 2)}`],
  [
    "colons after many escapes, in an object",
    `{"${"\\u0061".repeat(5400)}"${":".repeat(SIZE / 2)}`,
  ],
  ["commas", fill(",")],
  ["many names", `{${names}}`],
  ["many names, one twice", `{${names},"0":1}`],
  ["one name repeated", `{${fill('"a":1,')}"a":1}`],
  ["a long integer", fill("9")],
  ["a long fraction", `1.${fill("9")}`],
  ["zeros before a last digit", `[1.${fill("0")}1]`],
  ["zeros before an exponent", `[1${"0".repeat(SIZE / 2)}1e-${SIZE / 2}]`],
  ["a long exponent", `1e${fill("9")}`],
  ["many fractions", `[${fill("1.0,")}1.0]`],
  ["white space", fill(" ")],
];

for (const [what, text] of texts) {
  test(
    `parseJson parses or rejects ${what} in linear time`,
    () => {
      let expected: "a value" | "none" = "none";
      try {
        JSON.parse(text);
        expected = "a value";
      } catch {}
      for (let round = 0; round < ROUNDS; round += 1) {
        let found: "a value" | "none" = "none";
        try {
          parseJson(text);
          found = "a value";
        } catch {}
        // It may be stricter than JSON.parse, but never more lenient.
        if (expected === "none") expect(found).toBe("none");
      }
    },
    TIMEOUT_MS,
  );
}

test(
  "isEmail rejects a long text that is almost an email in linear time",
  () => {
    const almost = [
      fill("a"),
      `${fill("a")}@`,
      `${fill("a.")}@b`,
      `a@${fill("b")}`,
      `a@${fill("b-")}`,
      `a@${fill("b.")}`,
      `a@${fill("b.")}-`,
      `a@${"b".repeat(SIZE / 2)}.${"-".repeat(SIZE / 2)}`,
      fill("@"),
      fill("."),
      fill("é"),
    ];
    for (const text of almost) {
      for (let round = 0; round < ROUNDS; round += 1) {
        expect(isEmail(text), text.slice(0, 20)).toBe(false);
      }
    }
  },
  TIMEOUT_MS,
);
