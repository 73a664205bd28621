import { expect, test } from "bun:test";
import { Type } from "@sinclair/typebox";
import { isEmail } from "../../src/base/email.ts";
import { Nullable, OneOf, Text, Time } from "../../src/base/schema.ts";
import { createValidator, displayField } from "../../src/base/validator.ts";
import { Metadata, MetadataPatch } from "../../src/domain/metadata.ts";
import { expectThrown } from "../support/expect-error.ts";
import { countNewStrings } from "../support/new-strings.ts";

const emoji = "😀"; // One code point, two UTF-16 units.
const lone = "\ud83d"; // A lone surrogate.

const emails = [
  ..."a@b.cd A.b-c_d+e@Example.COM !#$%&'*+/=?^`{|}~@example.com 1@2.3 a@256.1.1.1".split(" "),
  ..."ÄNNE@exämple.de 用户@例子.广告 x@नेपाल.भारत x@l·l.例え・テスト a@b。cd a@½.example".split(" "),
  ..."x@xn--bcher-kva.example x@a-b.c-d.example .a..b.@b.cd".split(" "),
  ...[`${emoji}@example.com`, `a@${emoji}.example`, `a@${"b".repeat(63)}.cd`],
];

const noEmails = [
  ..."a a@ @b.cd a@b a@b. a@.b.cd a@b..cd a@-b.cd a@b-.cd a@b.cd- a@b_c.de".split(" "),
  ..."a@[127.0.0.1] a@b@c.de a@b.cd,e@f.gh <a@b.cd>".split(" "),
  ..."a@b.cd/ a@b.cd? a@b%2ecd a@b:8.cd a@b／c.de a@b＠c.de".split(" "),
  ...["", "a b@c.de", " a@b.cd", "a@b.cd ", "a@b.cd\n", "a\t@b.cd", "Anne <a@b.cd>", '"a b"@c.de'],
  ...["a\u00a0b@c.de", "a@b\u2003.cd", "a\u200bb@c.de", "a\u0085b@c.de", "a\u3164b@c.de"],
  ...["a@\u115fb.cd", "a\ufe0f@b.cd", "a\uffffb@c.de", "a\ufffdb@c.de", "a\ufdd0b@c.de"],
  ...["a\u{1fffe}b@c.de", "a@\u0301b.cd", "a\u0000@b.cd", "a@xn--zz.example", "a@אb.example"],
  ...[`a@${"b".repeat(64)}.cd`, `a@${"é".repeat(60)}.cd`],
];

test("isEmail is true for a valid email", () => {
  for (const text of emails) expect(isEmail(text), JSON.stringify(text)).toBe(true);
});

test("isEmail is false for any other text", () => {
  for (const text of noEmails) expect(isEmail(text), JSON.stringify(text)).toBe(false);
});

test("Time accepts a text only when it is RFC 3339 in UTC with milliseconds", () => {
  const checkTime = createValidator(Time);
  for (const text of [
    "2026-11-20T18:57:03.120Z",
    "2024-02-29T23:59:59.999Z",
    "0000-01-01T00:00:00.000Z",
  ]) {
    expect(checkTime(text)).toBe(text);
  }
  const others = [
    "2026-11-20T18:57:03Z",
    "2026-11-20T18:57:03.120+00:00",
    "2026-11-20 18:57:03.120Z",
    "2026-11-20T18:57:03.120Z\n",
    "2025-02-29T00:00:00.000Z",
    "2026-11-20T18:57:60.000Z",
    "+010000-01-01T00:00:00.000Z",
    0,
    null,
  ];
  const rule = /must be a time with an offset, such as 2026-11-20T18:57:03.120Z$/;
  for (const other of others) expectThrown(() => checkTime(other), "validation_failed", rule);
});

const closed = { additionalProperties: false } as const;
const fields = {
  email: Text({ maxLength: 10, format: "email" }),
  label: Type.Optional(Nullable(Text({ minLength: 1, maxLength: 3 }))),
  colour: Type.Optional(OneOf(["red", "blue"])),
  code: Type.Optional(OneOf([..."abcdefghijk"], { description: "a letter up to k" })),
  count: Type.Optional(Type.Integer({ minimum: 1, maximum: 9 })),
  items: Type.Optional(
    Type.Array(Type.Object({ price: Type.Integer({ minimum: 0, maximum: 5 }) }, closed), {
      minItems: 1,
      maxItems: 2,
    }),
  ),
  metadata: Type.Optional(Metadata),
  patch: Type.Optional(MetadataPatch),
};
const Sample = Type.Object(fields, closed);
const SampleRecord = Type.Object({ id: Type.Integer(), ...fields }, closed);
const check = createValidator(Sample, SampleRecord);

const ok = { email: "a@b.cd" };

const accepted: [string, object][] = [
  ["only what is required", {}],
  ["as many code points as allowed", { label: emoji.repeat(3) }],
  ["one of the strings", { colour: "blue", code: "k" }],
  ["the bounds of an integer", { count: 9, items: [{ price: 0 }, { price: 5 }] }],
  ["null for a key of a patch", { patch: { a: null, b: "c" } }],
  ["null for all of a patch", { patch: null }],
];

for (const [what, extra] of accepted) {
  test(`createValidator returns the value itself when it has ${what}`, () => {
    const value = { ...ok, ...extra };
    expect(check(value)).toBe(value);
  });
}

test("createValidator allocates no string for each code point of a text", () => {
  const length = 10_000;
  const text = Type.Object({ text: Text({ maxLength: length }) }, closed);
  const checkText = createValidator(text, text);
  const value = { text: emoji.repeat(length) };
  checkText(value);
  expect(countNewStrings(() => checkText(value))).toBeLessThan(length / 2);
});

const textRule = "must be text without U+0000 and lone surrogates";
const names = Object.keys(fields).join();
/** The problems, each after its code and its details. */
const rejected: [string, unknown, ...string[]][] = [
  ["is null", null, "type: body must be a JSON object"],
  ["is an array", [], "type: body must be a JSON object"],
  ["is empty", {}, "required: email is required"],
  [
    "breaks several rules",
    { email: 5, nmae: 1, count: 0 },
    `not_allowed ${names}: nmae is not allowed`,
    "type: email must be an email address of at most 10 characters",
    "range 1 9: count must be an integer from 1 to 9",
  ],
  ["has a read-only field", { ...ok, id: 1 }, "read_only: id is read-only"],
  [
    "has __proto__",
    JSON.parse('{"email": "a@b.cd", "__proto__": {}}'),
    `not_allowed ${names}: __proto__ is`,
  ],
  [
    "has empty text",
    { ...ok, label: "" },
    "length 1 3: label must be text of 1 to 3 characters or null",
  ],
  ["has too many emoji", { ...ok, label: emoji.repeat(4) }, "length 1 3: label must"],
  ["has a malformed email", { email: "a" }, "format: email must be an email"],
  ["has a long email", { email: "a@b.cdefghi" }, "length 0 10: email must be an email"],
  ["has a lone surrogate", { ...ok, label: lone }, `format: label ${textRule}`],
  [
    "has another string",
    { ...ok, colour: "Red" },
    "not_allowed red,blue: colour must be one of red, blue",
  ],
  ["has an unknown code", { ...ok, code: "z" }, "format: code must be a letter up to k"],
  [
    "has text for a number",
    { ...ok, count: "1" },
    "type: count must be a whole number from 1 to 9",
  ],
  ["has a fraction", { ...ok, count: 1.5 }, "type: count must be a whole number from 1 to 9"],
  ["has no items", { ...ok, items: [] }, "length 1 2: items must be an array of 1 to 2 items"],
  [
    "has bad items",
    { ...ok, items: [{ price: 6 }, { id: 1 }] },
    "range 0 5: items[0].price must be an integer from 0 to 5",
    "required: items[1].price is required",
    "not_allowed price: items[1].id is not allowed",
  ],
  ["has text as item", { ...ok, items: ["a"] }, "type: items[0] must be a JSON object"],
  ["has a field without a name", { ...ok, "": 1 }, `not_allowed ${names}: "" is not allowed`],
  ["has a long key", { ...ok, metadata: { ["k".repeat(41)]: "" } }, "length 1 40: metadata.kkk"],
  [
    "has many keys",
    { ...ok, metadata: Object.fromEntries(Array.from({ length: 51 }, (_, at) => [at, ""])) },
    "length 0 50: metadata must be an object",
  ],
  ["has odd keys", { ...ok, metadata: { "a/~1b": 1 } }, "type: metadata.a/~1b must be text"],
  [
    "has a number in a patch",
    { ...ok, patch: { a: 1 } },
    "type: patch.a must be text of at most 500 characters or null",
  ],
];

for (const [what, value, ...expected] of rejected) {
  test(`createValidator names the fields and problems when the body ${what}`, () => {
    const { message, problems } = expectThrown(() => check(value), "validation_failed");
    expect(message).toBe(`Validation failed: ${problems[0]?.field} ${problems[0]?.problem}`);
    const lines = problems.map(({ field, code, problem, min, max, allowed }) => {
      const details = [code, min, max, allowed].filter((detail) => detail !== undefined);
      return `${details.join(" ")}: ${field} ${problem}`;
    });
    expect(lines).toHaveLength(expected.length);
    for (const [at, line] of lines.entries()) expect(line).toStartWith(expected[at] ?? "");
  });
}

test("createValidator lists at most 20 problems", () => {
  const many = Object.fromEntries(Array.from({ length: 200 }, (_, at) => [`x${at}`, at]));
  const { problems } = expectThrown(() => check({ ...ok, ...many }), "validation_failed");
  expect(problems.map(({ field }) => field)).toEqual(
    Array.from({ length: 20 }, (_, at) => `x${at}`),
  );
});

test("createValidator reports a field as not allowed when it knows no record", () => {
  expectThrown(
    () => createValidator(Sample)({ ...ok, id: 1 }),
    "validation_failed",
    /id is not allowed$/,
  );
});

test("displayField shortens a name of more than 100 characters", () => {
  expect(displayField("a".repeat(100))).toBe("a".repeat(100));
  expect(displayField("a".repeat(101))).toBe(`${"a".repeat(100)}…`);
  expect(displayField("").length).toBeGreaterThan(0);
  for (const odd of [`${"a".repeat(99)}${emoji}`, lone, emoji.repeat(60)]) {
    expect(displayField(odd).isWellFormed()).toBe(true);
  }
});
