import { expect, test } from "bun:test";
import { emailKey } from "../../src/base/email.ts";
import { createOrderParser, createUserParser, userImport } from "../../src/domain/import-rules.ts";
import { firstVersion } from "../../src/domain/record.ts";
import { userFields } from "../../src/domain/user.ts";
import { expectThrown } from "../support/expect-error.ts";

const time = "2026-11-20T18:57:03.120Z";

test("emailKey is the same for emails of one mailbox", () => {
  const pairs = [
    ["Anne@Example.COM", "anne@example.com"],
    ["ÄNNE@EXÄMPLE.de", "änne@exämple.de"],
    ["𐐀@example.com", "𐐨@example.com"],
    ["ΑΣ@x.gr", "ας@x.gr"],
    ["ΣΑΣ@ΟΔΟΣ.GR", "σας@οδος.gr"],
    ["ä@b.cd", "A\u0308@b.cd"],
    ["\u1100\u1161@b.cd", "가@b.cd"],
    ["a@bücher.example", "a@xn--bcher-kva.example"],
    ["a@faß.de", "a@xn--fa-hia.de"],
    ["a@οδος.gr", "a@xn--pxavbq.gr"],
    ["a@例え。テスト", "a@xn--r8jz45g.xn--zckzah"],
    ["a@ｅｘａｍｐｌｅ.com", "a@example.com"],
  ];
  for (const [left = "", right = ""] of pairs) expect(emailKey(left)).toBe(emailKey(right));
  expect(emailKey("Anne@FAẞ.de")).toBe("anne@xn--fa-hia.de");
  for (const other of ["a@fass.de", "ａ@faß.de", "a\u0308@faß.de", "a.@faß.de"]) {
    expect(emailKey("a@faß.de")).not.toBe(emailKey(other));
  }
  // These are not IPv4 addresses.
  expect(emailKey("a@1.2.3")).toBe("a@1.2.3");
  expect(emailKey("a@１.２.３")).toBe("a@1.2.3");
});

test("emailKey lowers a character in the same way when it stands elsewhere", () => {
  const failed: string[] = [];
  for (let code = 0; code <= 0x10ffff; code += 1) {
    const character = String.fromCodePoint(code);
    if (!/\p{Changes_When_Lowercased}/u.test(character)) continue;
    const lower = emailKey(`${character}@`).slice(0, -1);
    for (const word of ["_a", "a_", "a_a"]) {
      const key = emailKey(`${word.replace("_", character)}@`);
      // A combining character joins the letter before it.
      if (key !== `${word.replace("_", lower)}@`.normalize("NFC")) failed.push(character);
    }
  }
  expect(failed).toEqual([]);
});

test("createUserParser and createOrderParser accept exports, but no version that later changes could take beyond 2^53", () => {
  const parse = createUserParser();
  const user = firstVersion(7, userFields({ email: "a@b.cd" }), time);
  const largest = { ...user, version: 2 ** 52 };
  expect(parse(largest)).toEqual(largest);
  const message = "Validation failed: version must be an integer from 1 to 4503599627370496";
  expectThrown(() => parse({ ...user, version: 2 ** 52 + 1 }), "validation_failed", message);
  // Exports of the first version lack later fields.
  const first = firstVersion(1, { email: "a@b.cd", name: null, metadata: {} }, time);
  expect(parse(first)).toEqual(first);
  expect(userImport.complete(first, 1, time, null)).toEqual({ ...first, reference: null });
  const items = [{ sku: "A", quantity: 1, unit_price: 1 }];
  const fields = { user_id: 1, currency: "EUR", items, total: 1, status: "paid", metadata: {} };
  const order = firstVersion(1, fields, time);
  expect(createOrderParser()(order)).toEqual(order as never);
});
