import { expect, test } from "bun:test";
import { createValidator } from "../src/schema.ts";
import {
  createUserParser,
  emailKey,
  patchUser,
  User,
  type UserFields,
  UserInput,
  UserPatch,
  userFields,
} from "../src/user.ts";
import { expectThrown } from "./expect-error.ts";

const emoji = "😀";

const user: User = {
  id: 7,
  email: "Anne@example.com",
  name: "Anne",
  metadata: { a: "1" },
  version: 3,
  created_at: "2026-11-20T18:57:03.120Z",
  updated_at: "2026-11-20T18:57:03.120Z",
};
const { email, name, metadata } = user;

test("emailKey is the same for emails that differ only in case", () => {
  const pairs = [
    ["Anne@Example.COM", "anne@example.com"],
    ["ÄNNE@EXÄMPLE.de", "änne@exämple.de"],
    ["ИВАН@пример.рф", "иван@ПРИМЕР.рф"],
    ["𐐀@example.com", "𐐨@example.com"],
  ];
  for (const [left = "", right = ""] of pairs) expect(emailKey(left)).toBe(emailKey(right));
  // Nothing except case is normalised.
  for (const other of ["änne@example.com", "a\u0308nne@example.com", "ａnne@example.com"]) {
    expect(emailKey("anne@example.com")).not.toBe(emailKey(other));
  }
  expect(emailKey("ä@b.cd")).not.toBe(emailKey("a\u0308@b.cd"));
});

const inputs: [string, UserInput, UserFields][] = [
  ["has only an email", { email }, { email, name: null, metadata: {} }],
  ["has null for a name", { email, name: null }, { email, name: null, metadata: {} }],
  ["is complete", { email, name, metadata }, { email, name, metadata }],
];

for (const [what, input, expected] of inputs) {
  test(`userFields fills in the defaults when the body ${what}`, () => {
    expect(userFields(input)).toEqual(expected);
  });
}

const patches: [string, UserPatch, UserFields | null][] = [
  ["is empty", {}, null],
  ["has the email", { email: "b@c.de" }, { email: "b@c.de", name, metadata }],
  ["has the email as it is", { email }, { email, name, metadata }],
  ["has the name", { name: "Bea" }, { email, name: "Bea", metadata }],
  ["has null for the name", { name: null }, { email, name: null, metadata }],
  [
    "has a key of metadata",
    { metadata: { b: "2" } },
    { email, name, metadata: { a: "1", b: "2" } },
  ],
  ["has null for a key", { metadata: { a: null } }, { email, name, metadata: {} }],
  ["has null for metadata", { metadata: null }, { email, name, metadata: {} }],
  ["has no key of metadata", { metadata: {} }, { email, name, metadata }],
];

for (const [what, patch, expected] of patches) {
  test(`patchUser keeps omitted fields when the patch ${what}`, () => {
    const before = structuredClone(user);
    expect(patchUser(user, patch)).toEqual(expected);
    expect(user).toEqual(before);
  });
}

const checkInput = createValidator(UserInput, User);
const checkPatch = createValidator(UserPatch, User);
/** @returns a valid email of this many code points */
const emailOf = (length: number) => `${emoji.repeat(length - 12)}@example.com`;

test("UserInput and UserPatch accept values at their bounds", () => {
  for (const value of [
    { email: emailOf(254) },
    { email, name: "a" },
    { email, name: emoji.repeat(200) },
    { email, name: null, metadata: {} },
  ]) {
    expect(checkInput(value)).toBe(value);
    expect(checkPatch(value)).toBe(value);
  }
});

const email_rule = "email must be an email address of at most 254 characters";
const name_rule = "name must be text of 1 to 200 characters or null";
const rejected: [unknown, string][] = [
  [{ email: emailOf(255) }, email_rule],
  [{ email: null }, email_rule],
  [{ email: "anne" }, email_rule],
  [{ email, name: "" }, name_rule],
  [{ email, name: emoji.repeat(201) }, name_rule],
  [{ email, name: 5 }, name_rule],
  [{ email, id: 7 }, "id is read-only"],
  [{ email, version: 3 }, "version is read-only"],
  [{ email, created_at: user.created_at }, "created_at is read-only"],
  [{ email, updated_at: null }, "updated_at is read-only"],
  [{ email, orders: [] }, "orders is not allowed"],
];

for (const [value, problem] of rejected) {
  test(`UserInput and UserPatch reject a body when ${problem}`, () => {
    expectThrown(() => checkInput(value), "invalid", `Validation failed: ${problem}`);
    expectThrown(() => checkPatch(value), "invalid", `Validation failed: ${problem}`);
  });
}

test("UserInput, unlike UserPatch, rejects a body when email is missing or metadata is null", () => {
  expectThrown(() => checkInput({}), "invalid", "Validation failed: email is required");
  expect(checkPatch({})).toEqual({});
  expectThrown(
    () => checkInput({ email, metadata: null }),
    "invalid",
    /metadata must be an object/,
  );
  expectThrown(
    () => checkInput({ email, metadata: { a: null } }),
    "invalid",
    /metadata\.a must be/,
  );
  expect(checkPatch({ metadata: null })).toEqual({ metadata: null });
  expect(checkPatch({ metadata: { a: null } })).toEqual({ metadata: { a: null } });
});

test("createUserParser rejects a version that later changes could take beyond 2^53", () => {
  const parse = createUserParser();
  const largest = { ...user, version: 2 ** 52 };
  expect(parse(largest)).toEqual(largest);
  const message = "Validation failed: version must be at most 4503599627370496 in an import";
  expectThrown(() => parse({ ...user, version: 2 ** 52 + 1 }), "invalid", message);
});
