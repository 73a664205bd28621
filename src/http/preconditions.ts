/** The header fields that make a write safe: `If-Match`, `If-None-Match` and `Idempotency-Key`. */
import { failField } from "../error.ts";
import { fingerprint, type IdempotencyKey } from "../idempotency.ts";
import type { EntityTags, Preconditions } from "../precondition.ts";
import { parseUnsigned } from "./params.ts";

/** @see RFC 9110 §8.8.3 */
const ENTITY_TAG = /(W\/)?"([\x21\x23-\x7e\x80-\xff]*)"/g;
const TAG = ENTITY_TAG.source;
/** `*`, or a list of entity tags. The list may have empty elements (RFC 9110 §5.6.1.2). */
export const ENTITY_TAGS = new RegExp(
  `^(?:[ \\t]*\\*[ \\t]*|[ \\t,]*${TAG}(?:[ \\t]*,[ \\t,]*${TAG})*[ \\t,]*)$`,
);

/** @throws {AppError} invalid */
function readEntityTags(field: string, value: string | null | undefined): EntityTags | null {
  if (value === undefined || value === null) return null;
  if (!ENTITY_TAGS.test(value)) failField(field, "must be * or a list of entity tags");
  if (value.trim() === "*") return "*";
  return [...value.matchAll(ENTITY_TAG)].map(([, weak, tag = ""]) => ({
    version: parseUnsigned(tag),
    weak: weak !== undefined,
  }));
}

/**
 * Parses `If-Match` and `If-None-Match` of a request for one record.
 * @returns `null` if the request has neither
 * @throws {AppError} invalid
 */
export function readPreconditions(
  if_match: string | null | undefined,
  if_none_match: string | null | undefined,
): Preconditions | null {
  // Most requests have neither, and this check is cheaper than an object.
  if ((if_match ?? if_none_match ?? null) === null) return null;
  return {
    if_match: readEntityTags("If-Match", if_match),
    if_none_match: readEntityTags("If-None-Match", if_none_match),
  };
}

export const IDEMPOTENCY_KEY = /^[\x21-\x7e]{1,255}$/;

/**
 * @param key the header field; `null` if the request has none
 * @throws {AppError} invalid if it is malformed
 */
export function requireIdempotencyKey(key: string | null): void {
  if (key === null || IDEMPOTENCY_KEY.test(key)) return;
  failField("Idempotency-Key", "must be 1 to 255 visible ASCII characters");
}

/**
 * The `Idempotency-Key` of a POST.
 * @param key a key that `requireIdempotencyKey` accepts; `null` or `undefined` if the request has none
 * @param owner the hash of the token, to which the key belongs
 */
export function readIdempotencyKey(
  key: string | null | undefined,
  owner: string,
  path: string,
  body: unknown,
): IdempotencyKey | null {
  if (key === undefined || key === null) return null;
  return { owner, key, fingerprint: fingerprint("POST", path, body) };
}
