import { failField } from "../../base/error.ts";
import type { EntityTags, Preconditions } from "../../domain/precondition.ts";
import { parseInteger } from "./input.ts";

/** @see RFC 9110 §8.8.3 */
const ENTITY_TAG = /(W\/)?"([\x21\x23-\x7e\x80-\xff]*)"/g;
const TAG = ENTITY_TAG.source;
const MAX_TAGS = 100;
/** `*`, or a list of entity tags. The list may have empty elements (RFC 9110 §5.6.1.2). */
export const ENTITY_TAGS = new RegExp(
  `^(?:[ \\t]*\\*[ \\t]*|[ \\t,]*${TAG}(?:[ \\t]*,[ \\t,]*${TAG}){0,${MAX_TAGS - 1}}[ \\t,]*)$`,
);

function parseEntityTags(field: string, value: string | null): EntityTags | null {
  if (value === null) return null;
  if (!ENTITY_TAGS.test(value)) {
    failField(
      field,
      "format",
      `must be * or a list of at most ${MAX_TAGS} entity tags such as "1", with the quotes`,
    );
  }
  if (value.trim() === "*") return "*";
  return [...value.matchAll(ENTITY_TAG)].map(([, weak, tag = ""]) => ({
    version: parseInteger(tag),
    weak: weak !== undefined,
  }));
}

/** @returns `null` if the request has neither. @throws {AppError} validation_failed */
export function preconditionsOf({ headers }: Request): Preconditions | null {
  const ifMatch = headers.get("if-match");
  const ifNoneMatch = headers.get("if-none-match");
  // Most requests have neither, and this check is cheaper than an object.
  if (ifMatch === null && ifNoneMatch === null) return null;
  return {
    ifMatch: parseEntityTags("If-Match", ifMatch),
    ifNoneMatch: parseEntityTags("If-None-Match", ifNoneMatch),
  };
}
