import { expect, test } from "bun:test";
import { createUserParser } from "../src/import-rules.ts";
import { emailKey, type User } from "../src/user.ts";
import { expectThrown } from "./expect-error.ts";

const user: User = {
  id: 7,
  email: "Anne@example.com",
  name: "Anne",
  metadata: { a: "1" },
  version: 3,
  created_at: "2026-11-20T18:57:03.120Z",
  updated_at: "2026-11-20T18:57:03.120Z",
};
test("emailKey is the same for emails that differ only in case", () => {
  const pairs = [
    ["Anne@Example.COM", "anne@example.com"],
    ["ÄNNE@EXÄMPLE.de", "änne@exämple.de"],
    ["ИВАН@пример.рф", "иван@ПРИМЕР.рф"],
    ["𐐀@example.com", "𐐨@example.com"],
    ["ΑΣ@x.gr", "ασ@x.gr"],
    ["ΑΣ@x.gr", "ας@x.gr"],
    ["ΣΑΣ@ΟΔΟΣ.GR", "σας@οδος.gr"],
  ];
  for (const [left = "", right = ""] of pairs) expect(emailKey(left)).toBe(emailKey(right));
  // Nothing except case is normalised.
  for (const other of ["änne@example.com", "a\u0308nne@example.com", "ａnne@example.com"]) {
    expect(emailKey("anne@example.com")).not.toBe(emailKey(other));
  }
  expect(emailKey("ä@b.cd")).not.toBe(emailKey("a\u0308@b.cd"));
});

test("emailKey lowers a character in the same way when it stands elsewhere", () => {
  const failed: string[] = [];
  for (let code = 0; code <= 0x10ffff; code += 1) {
    const character = String.fromCodePoint(code);
    if (!/\p{Changes_When_Lowercased}/u.test(character)) continue;
    const lower = emailKey(character);
    for (const [before, after] of [
      ["", "a"],
      ["a", ""],
      ["a", "a"],
    ]) {
      if (emailKey(`${before}${character}${after}`) !== `${before}${lower}${after}`) {
        failed.push(character);
      }
    }
  }
  expect(failed).toEqual([]);
});

test("createUserParser rejects a version that later changes could take beyond 2^53", () => {
  const parse = createUserParser();
  const largest = { ...user, version: 2 ** 52 };
  expect(parse(largest)).toEqual(largest);
  const message = "Validation failed: version must be at most 4503599627370496 in an import";
  expectThrown(() => parse({ ...user, version: 2 ** 52 + 1 }), "invalid", message);
});
