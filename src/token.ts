import { type Static, Type } from "@sinclair/typebox";
import { Nullable, OneOf, Text, Time } from "./schema.ts";

const PREFIX = "uat_";
const SECRET_LENGTH = 30;
const CHECKSUM_LENGTH = 6;
const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const SHAPE = /^uat_([0-9A-Za-z]{30})([0-9A-Za-z]{6})$/;

export const token_scopes = ["read", "write"] as const;
export type TokenScope = (typeof token_scopes)[number];

/** What is kept of a token: all but the token itself. */
export const Token = Type.Object({
  /** SHA-256 of the token, 64 hexadecimal digits. */
  hash: Type.String(),
  name: Text({ minLength: 1, maxLength: 100 }),
  scope: OneOf(token_scopes),
  created_at: Time,
  /** From then on refused; `null` for never. */
  expires_at: Nullable(Time),
  /** To the minute; `null` when never used. */
  last_used_at: Nullable(Time),
  /** From then on refused; `null` while valid. */
  revoked_at: Nullable(Time),
});
export type Token = Static<typeof Token>;
export type TokenFields = Pick<Token, "hash" | "name" | "scope" | "expires_at">;

/** CRC-32 in base62, most significant digit first, as GitHub's tokens have it. */
function checksum(secret: string): string {
  let remainder = Bun.hash.crc32(secret);
  let digits = "";
  while (digits.length < CHECKSUM_LENGTH) {
    digits = ALPHABET.charAt(remainder % ALPHABET.length) + digits;
    remainder = Math.floor(remainder / ALPHABET.length);
  }
  return digits;
}

/** A new secret: `uat_`, 30 random base62 characters (178 bits), and their checksum. */
export function newToken(): string {
  let secret = "";
  while (secret.length < SECRET_LENGTH) {
    for (const byte of crypto.getRandomValues(new Uint8Array(SECRET_LENGTH))) {
      // 248 is the last multiple of 62 in a byte: beyond it some characters would be likelier.
      if (byte < 248 && secret.length < SECRET_LENGTH) secret += ALPHABET.charAt(byte % 62);
    }
  }
  return PREFIX + secret + checksum(secret);
}

/** True for text that `newToken` could have made: a typo is told apart without asking the store. */
export function hasTokenFormat(text: string): boolean {
  const [, secret, digits] = SHAPE.exec(text) ?? [];
  return secret !== undefined && checksum(secret) === digits;
}

/** 1 to 100 characters that can be printed in a table. */
export function isTokenName(name: string): boolean {
  return /^[^\p{Cc}\p{Cs}]{1,100}$/u.test(name);
}

/** What is stored in place of the token. 178 random bits need no salt and no slow hash. */
export function hashToken(token: string): string {
  return Bun.CryptoHasher.hash("sha256", token, "hex");
}

export function isActive(token: Token, now: Date): boolean {
  if (token.revoked_at !== null) return false;
  return token.expires_at === null || now.getTime() < Date.parse(token.expires_at);
}

/** The minute that `now` is in, as a number: a use is kept no finer. */
export function minuteOf(now: Date): number {
  return Math.floor(now.getTime() / 60_000);
}

/** The minute that `now` is in, as it is kept. */
export function truncateToMinute(now: Date): string {
  return new Date(minuteOf(now) * 60_000).toISOString();
}

/** Where tokens are kept. Every method is one transaction; a resolved write is on disk. */
export interface TokenStore {
  /** All tokens that ever were, oldest first. */
  list(): Promise<readonly Token[]>;
  /** `null` when no token has this hash. Revoked and expired ones are found, too. */
  find(hash: string): Promise<Token | null>;
  /** @throws {AppError} token_name_taken if a token that is not revoked has this name */
  create(fields: TokenFields): Promise<Token>;
  /** Makes `fields` a token if there is none at all; `null` when there is one. */
  createFirst(fields: TokenFields): Promise<Token | null>;
  /** @returns the revoked token; `null` when no valid token has this name */
  revoke(name: string): Promise<Token | null>;
  /** Notes the last use, a time of {@link truncateToMinute}. */
  touch(hash: string, used_at: string): Promise<void>;
}
