import { expect, test } from "bun:test";
import { hashToken, hasTokenFormat, newToken } from "../../src/domain/token.ts";

const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

// The checksum comes from Python: zlib.crc32 of the 30 characters, in base62.
const known = "uat_AbCdEfGhIjKlMnOpQrStUvWxYz01232piBxe";

test("newToken returns different tokens of the right format, and uses all characters equally often", () => {
  const made = Array.from({ length: 8000 }, () => newToken());
  expect(new Set(made).size).toBe(made.length);
  const drawn = new Map([...ALPHABET].map((character) => [character, 0]));
  for (const token of made) {
    expect(token).toMatch(/^uat_[0-9A-Za-z]{36}$/);
    expect(hasTokenFormat(token)).toBe(true);
    for (const character of token.slice(4, 34)) {
      drawn.set(character, (drawn.get(character) ?? 0) + 1);
    }
  }
  expect([...drawn.keys()].join("")).toBe(ALPHABET);
  // 3,871 each are expected, with a standard deviation of 62. Seven deviations are not a coincidence.
  for (const [character, count] of drawn) {
    expect(count, character).toBeWithin(3871 - 7 * 62, 3871 + 7 * 62);
  }
});

test("hashToken is the same in every run, and hasTokenFormat true for the checksum of another implementation, and false when any one character has changed, is missing or was added", () => {
  for (const token of [known, newToken()]) {
    expect(hasTokenFormat(token)).toBe(true);
    for (let at = 0; at < token.length; at += 1) {
      for (const character of `${ALPHABET}_- \0é`) {
        if (character === token[at]) continue;
        const changed = token.slice(0, at) + character + token.slice(at + 1);
        expect(hasTokenFormat(changed), changed).toBe(false);
      }
      expect(hasTokenFormat(token.slice(0, at) + token.slice(at + 1))).toBe(false);
      expect(hasTokenFormat(`${token.slice(0, at)}0${token.slice(at)}`)).toBe(false);
    }
    for (const other of ["", "uat_", ` ${token}`, `${token}\n`, token + token])
      expect(hasTokenFormat(other), other).toBe(false);
  }
  // The SHA-256.
  const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  expect(hashToken("abc")).toBe(abc);
});
