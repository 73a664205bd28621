import { AppError } from "../base/error.ts";
import type { MaybePromise } from "../base/maybe-promise.ts";
import { UNREADABLE } from "../base/readable-text.ts";

const SECRET_LENGTH = 30;
const CHECKSUM_LENGTH = 6;
const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const SHAPE = /^uat_([0-9A-Za-z]{30})([0-9A-Za-z]{6})$/;

/** `read` and `write` stand for users and orders. Writing includes reading. */
export const scopeWords = [
  "read",
  "write",
  "users:read",
  "users:write",
  "orders:read",
  "orders:write",
] as const;

export type Scope = `${"users" | "orders"}:${"read" | "write"}`;

/** @throws {AppError} insufficient_scope, which names what is missing */
export function requireScopes({ scope }: Pick<Token, "scope">, needed: readonly Scope[]): void {
  if (scope === "write") return;
  const words = scope.split(",");
  const missing = needed.filter((each) => {
    const [kind, access] = each.split(":");
    if (words.includes("write") || words.includes(`${kind}:write`)) return false;
    return access === "write" || !(words.includes("read") || words.includes(each));
  });
  if (missing.length === 0) return;
  const message = `this token lacks the scope ${missing.join(" and ")}`;
  throw new AppError("insufficient_scope", message, { scopes: missing });
}

/** Identifies a client: the SHA-256 of its token, 64 hexadecimal digits. */
export type ClientId = string;

export interface Token {
  readonly hash: ClientId;
  readonly name: string;
  /** Words of {@link scopeWords}, separated by commas. */
  readonly scope: string;
  readonly created_at: string;
  /** The token is rejected from then on; `null` if it does not expire. */
  readonly expires_at: string | null;
  /** To the minute; `null` if never used. */
  readonly last_used_at: string | null;
  /** The token is rejected from then on; `null` if it is not revoked. */
  readonly revoked_at: string | null;
}
export type TokenFields = Pick<Token, "hash" | "name" | "scope" | "expires_at">;

export const tokenColumns = "hash, name, scope, created_at, expires_at, last_used_at, revoked_at";

/** @returns the CRC-32 in base62, most significant digit first, as in the tokens of GitHub */
function checksum(secret: string): string {
  let remainder = Bun.hash.crc32(secret);
  let digits = "";
  while (digits.length < CHECKSUM_LENGTH) {
    digits = ALPHABET.charAt(remainder % ALPHABET.length) + digits;
    remainder = Math.floor(remainder / ALPHABET.length);
  }
  return digits;
}

/** @returns a new token: `uat_`, 30 random base62 characters (178 bits), and their checksum */
export function newToken(): string {
  let secret = "";
  while (secret.length < SECRET_LENGTH) {
    for (const byte of crypto.getRandomValues(new Uint8Array(SECRET_LENGTH))) {
      // 248 is the largest multiple of 62 in a byte. Higher values would bias the characters.
      if (byte < 248 && secret.length < SECRET_LENGTH) secret += ALPHABET.charAt(byte % 62);
    }
  }
  return `uat_${secret}${checksum(secret)}`;
}

/** Whether `newToken` could have created the text. A typing error is detected without the store. */
export function hasTokenFormat(text: string): boolean {
  const [, secret, digits] = SHAPE.exec(text) ?? [];
  return secret !== undefined && checksum(secret) === digits;
}

/** Whether a new token may have the name. Older versions accepted more. */
export function isTokenName(name: string): boolean {
  const isReadable = !UNREADABLE.test(name.replaceAll(" ", ""));
  return /^[^\p{Cs}]{1,100}$/u.test(name) && name.trim() === name && isReadable;
}

/** @returns the hash that is stored. 178 random bits need neither a salt nor a slow hash */
export function hashToken(token: string): string {
  return Bun.CryptoHasher.hash("sha256", token, "hex");
}

export function stateOf(token: Pick<Token, "expires_at" | "revoked_at">, now: Date) {
  const { expires_at, revoked_at } = token;
  if (revoked_at !== null) return "revoked";
  return expires_at === null || now.getTime() < Date.parse(expires_at) ? "valid" : "expired";
}

/** Stores tokens. Every method is one transaction. A write is on disk when its promise resolves. */
export interface TokenStore {
  /** @returns all tokens, including revoked and expired ones, oldest first */
  list(): Promise<readonly Token[]>;
  /** @returns the token, even if it is revoked or expired; `null` if no token has this hash */
  find(hash: string): MaybePromise<Token | null>;
  /** @returns `null` if a token that is not revoked has this name */
  create(fields: TokenFields): Promise<Token | null>;
  /** @returns the revoked token; `null` if no valid token has this name */
  revoke(name: string): Promise<Token | null>;
  /** Stores the time of the last use. @param usedAt RFC 3339, the start of a minute */
  touch(hash: string, usedAt: string): Promise<void>;
}

/** A write that was rejected can have been made, e.g. if the connection was lost after the commit. */
export async function storeToken(tokens: TokenStore, fields: TokenFields): Promise<Token | null> {
  try {
    return await tokens.create(fields);
  } catch (error) {
    const stored = await Promise.try(() => tokens.find(fields.hash)).catch(() => null);
    if (stored === null) throw error;
    return stored;
  }
}
