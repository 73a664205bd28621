import { expect, test } from "bun:test";
import { Type } from "@sinclair/typebox";
import { isEmail } from "../../src/base/email.ts";
import { Nullable, OneOf, Text, Time } from "../../src/base/schema.ts";
import { createValidator, displayField } from "../../src/base/validator.ts";
import { Metadata, MetadataPatch } from "../../src/domain/metadata.ts";
import { expectThrown } from "../support/expect-error.ts";

const emoji = "😀"; // One code point, two UTF-16 units.
const lone = "\ud83d"; // A lone surrogate.
const long = "k".repeat(41);

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

test("isEmail is true for a valid email, and false for any other text", () => {
  for (const text of emails) expect(isEmail(text), JSON.stringify(text)).toBe(true);
  for (const text of noEmails) expect(isEmail(text), JSON.stringify(text)).toBe(false);
});

const times = ["2026-11-20T18:57:03.120Z", "2024-02-29T23:59:59.999Z", "0000-01-01T00:00:00.000Z"];
const noTimes = [
  ...["2026-11-20T18:57:03Z", "2026-11-20T18:57:03.120+00:00", "2026-11-20 18:57:03.120Z"],
  ...["2026-11-20T18:57:03.120Z\n", "2025-02-29T00:00:00.000Z", "2026-11-20T18:57:60.000Z"],
  ...["+010000-01-01T00:00:00.000Z", 0, null],
];

test("Time accepts a text only when it is RFC 3339 in UTC with milliseconds", () => {
  const checkTime = createValidator(Time);
  for (const text of times) expect(checkTime(text)).toBe(text);
  const rule = /must be a time with an offset, such as 2026-11-20T18:57:03.120Z$/;
  for (const other of noTimes) expectThrown(() => checkTime(other), "validation_failed", rule);
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

test("createValidator returns the value itself when it is valid", () => {
  const extra = { label: null, colour: "blue", code: "k", count: 9, patch: { a: null } };
  for (const value of [ok, { ...ok, ...extra, items: [{ price: 0 }, { price: 5 }] }])
    expect<unknown>(check(value)).toBe(value);
});

const names = Object.keys(fields).join();
/** Bodies, and the problems of each field after their codes and details. What clients see is in test/http. */
const rejected: [unknown, ...string[]][] = [
  [[], "type: body must be a JSON object"],
  [{}, "required: email is required"],
  [
    { email: 5, nmae: 1, id: 1, label: "", colour: "Red", code: "z", count: 0, items: [] },
    `not_allowed ${names}: nmae is not allowed`,
    "read_only: id is read-only",
    "type: email must be an email address of at most 10 characters",
    "length 1 3: label must be text of 1 to 3 characters or null",
    "not_allowed red,blue: colour must be one of red, blue",
    "format: code must be a letter up to k",
    "range 1 9: count must be an integer from 1 to 9",
    "length 1 2: items must be an array of 1 to 2 items",
  ],
  [
    { email: "a", label: lone, count: "1", items: [{ price: 6 }, { id: 1 }], patch: { a: 1 } },
    "format: email must be an email address of at most 10 characters",
    "format: label must be text without U+0000 and lone surrogates",
    "type: count must be a whole number from 1 to 9",
    "range 0 5: items[0].price must be an integer from 0 to 5",
    "required: items[1].price is required",
    "not_allowed price: items[1].id is not allowed",
    "type: patch.a must be text of at most 500 characters or null",
  ],
  [
    { email: "a@b.cdefghi", items: ["a"], metadata: { "a/~1b": 1, [long]: "" }, "": 1 },
    `not_allowed ${names}: "" is not allowed`,
    "length 0 10: email must be an email address of at most 10 characters",
    "type: items[0] must be a JSON object",
    "type: metadata.a/~1b must be text of at most 500 characters",
    `length 1 40: metadata.${long} must have a name of 1 to 40 characters`,
  ],
];

test.each(rejected)("createValidator names the fields and problems of %j", (value, ...expected) => {
  const { problems } = expectThrown(() => check(value), "validation_failed");
  const lines = problems.map(({ field, code, problem, min, max, allowed }) => {
    const details = [code, min, max, allowed].filter((detail) => detail !== undefined);
    return `${details.join(" ")}: ${field} ${problem}`;
  });
  expect(lines).toEqual(expected);
});

test("displayField shortens a name of more than 100 characters", () => {
  expect(displayField("a".repeat(100))).toBe("a".repeat(100));
  expect(displayField("a".repeat(101))).toBe(`${"a".repeat(100)}…`);
  expect(displayField("").length).toBeGreaterThan(0);
  for (const odd of [`${"a".repeat(99)}${emoji}`, lone, emoji.repeat(60)]) {
    expect(displayField(odd).isWellFormed()).toBe(true);
  }
});
